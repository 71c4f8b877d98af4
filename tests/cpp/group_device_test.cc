// Whole groups over real sockets, with simulated devices that a thread of its own drives.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "group_job.h"
#include "simulated_accelerator.h"
#include "simulated_verbs.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;
using testing::Job;
using testing::kLong;
using testing::SimulatedAccelerator;
using testing::SimulatedMachine;

// The devices of a job's ranks, stepped in turn for as long as the job lives.
class Devices {
 public:
  explicit Devices(const std::vector<std::string>& machines) : machines_(machines) {
    for (const std::string& machine : machines) ++sizes_[machine];
    for (const auto& [machine, size] : sizes_) level0_[machine] = std::make_unique<SimulatedMachine>(size);
    runner_ = std::thread([this] { run(); });
  }
  ~Devices() {
    stopped_ = true;
    runner_.join();
  }

  Job::MakeAccelerator of(std::size_t rank, Loop& loop) {
    loops_[rank] = &loop;
    return [this, rank](int, const std::vector<int>& machineRanks, milliseconds) {
      SimulatedAccelerator::Settings settings;
      settings.mutex = mutex_;
      settings.drains = true;
      settings.isFull = full.contains(rank);
      settings.mayBeCalled = [loop = loops_.at(rank)] { return !loop->isCurrent(); };
      const auto local = std::ranges::find(machineRanks, static_cast<int>(rank)) - machineRanks.begin();
      auto made = std::make_unique<SimulatedAccelerator>(*level0_.at(machines_[rank]), static_cast<std::size_t>(local),
                                                         static_cast<unsigned>(rank), settings);
      const std::lock_guard lock(*mutex_);
      running_.insert(made.get());
      byRank[rank] = made.get();
      made->ended = [this, device = made.get()] {
        const std::lock_guard lock(*mutex_);
        running_.erase(device);
      };
      return made;
    };
  }

  std::map<std::size_t, SimulatedAccelerator*> byRank;
  std::set<std::size_t> full;  // ranks whose devices have no memory left

 private:
  void run() {
    while (!stopped_) {
      bool moved = false;
      {
        const std::lock_guard lock(*mutex_);
        for (SimulatedAccelerator* device : running_) moved = device->step() || moved;
      }
      if (!moved) std::this_thread::yield();
    }
  }

  const std::vector<std::string> machines_;
  std::map<std::size_t, Loop*> loops_;  // of each rank
  std::map<std::string, std::size_t> sizes_;
  std::map<std::string, std::unique_ptr<SimulatedMachine>> level0_;
  const std::shared_ptr<std::recursive_mutex> mutex_ = std::make_shared<std::recursive_mutex>();
  std::set<SimulatedAccelerator*> running_;  // guarded by it
  std::atomic<bool> stopped_ = false;
  std::thread runner_;
};

// A stream of the caller's needs a device, which the first call makes: so only its index is known before.
std::size_t callersStream = SimulatedAccelerator::Settings{}.streams;

struct Rig {
  explicit Rig(const std::vector<std::string>& machines) : Rig(machines, machines) {}
  // joined: each rank's machine in calls on a device
  Rig(const std::vector<std::string>& machines, const std::vector<std::string>& joined)
      : devices(joined), job(machines) {
    for (std::size_t r = 0; r < joined.size(); ++r) job.facts[r].device.machine = joined[r];
    job.makeAccelerator = [this](std::size_t rank) { return devices.of(rank, job.nodes[rank]->loop.loop()); };
  }
  std::future<std::string> submit(std::size_t rank, Call call) {
    auto done = std::make_shared<std::promise<std::string>>();
    call.done = [done](const Error& error) { done->set_value(error ? error.text() : ""); };
    job.nodes[rank]->group->submit(std::move(call), {.device = 0, .after = &callersStream, .joined = &callersStream});
    return done->get_future();
  }
  std::future<std::string> allReduce(std::size_t rank, std::vector<float>& tensor, milliseconds timeout = kLong) {
    return submit(rank, {.operands = {{tensor.data(), tensor.size(), {.dtype = DType::Float32}}},
                         .timeout = timeout,
                         .signature = {"all_reduce of " + std::to_string(tensor.size()) + " on a device"},
                         .done = nullptr});
  }
  // Between `whole`, which has a block for each rank, and this rank's part.
  std::future<std::string> half(Pattern pattern, std::size_t rank, std::vector<float>& whole,
                                std::vector<float>& part) {
    Call call{
        .pattern = pattern, .timeout = kLong, .signature = {"half of " + std::to_string(part.size())}, .done = nullptr};
    for (std::size_t block = 0; block < job.nodes.size(); ++block) {
      float* const there = whole.data() + block * part.size();
      float* const mine = block == rank ? part.data() : nullptr;
      const bool gathers = pattern == Pattern::AllGather;
      call.blocks.push_back(
          {{.from = gathers ? mine : there, .to = gathers ? there : mine, .elements = part.size(), .reduction = {}}});
    }
    return submit(rank, std::move(call));
  }
  void allReduceEverywhere(std::size_t elements) {
    const std::size_t world = job.nodes.size();
    std::vector<std::vector<float>> tensors;
    for (std::size_t r = 0; r < world; ++r) tensors.emplace_back(elements, static_cast<float>(r + 1));
    std::vector<std::future<std::string>> done;
    for (std::size_t r = 0; r < world; ++r) done.push_back(allReduce(r, tensors[r]));
    for (auto& one : done) EXPECT_EQ(one.get(), "");
    const std::vector<float> expected(elements, static_cast<float>(world * (world + 1)) / 2);
    for (const auto& tensor : tensors) EXPECT_EQ(tensor, expected);
  }

  Devices devices;
  Job job;
};

// No thread waits on the host between the two.
TEST(DeviceGroups, ScattersSumsAndGathersThem) {
  for (const auto& machines :
       {std::vector<std::string>{"a", "b"}, {"a", "b", "a", "b"}, {"a", "a", "a", "b"}, {"a", "b", "c"}}) {
    Rig rig(machines);
    rig.job.joinAll();
    const std::size_t world = machines.size();
    for (const std::size_t elements : {0U, 1U, 1000U, 100'000U}) {
      std::vector<std::vector<float>> wholes;
      std::vector<std::vector<float>> parts(world, std::vector<float>(elements));
      std::vector<std::vector<float>> gathered(world, std::vector<float>(world * elements));
      for (std::size_t r = 0; r < world; ++r) wholes.emplace_back(world * elements, static_cast<float>(r + 1));
      std::vector<std::future<std::string>> done;
      for (std::size_t r = 0; r < world; ++r) {
        done.push_back(rig.half(Pattern::ReduceScatter, r, wholes[r], parts[r]));
        done.push_back(rig.half(Pattern::AllGather, r, gathered[r], parts[r]));
      }
      for (auto& one : done) EXPECT_EQ(one.get(), "");
      const std::vector<float> expected(world * elements, static_cast<float>(world * (world + 1)) / 2);
      for (const auto& all : gathered) EXPECT_EQ(all, expected);
    }
  }
}

// In the second case one rank's device rails lead to other ranks than its rails for host tensors do.
TEST(DeviceGroups, SumsOverMachinesThatAreJoinedForDevices) {
  struct Case {
    std::vector<std::string> machines;
    std::vector<std::string> joined;
  };
  for (const Case& one : {Case{{"a", "b", "c", "d"}, {"x", "x", "y", "y"}},
                          Case{{"a", "a", "b", "b", "c", "c"}, {"x", "x", "x", "x", "y", "y"}}}) {
    Rig rig(one.machines, one.joined);
    rig.job.joinAll();
    for (const std::size_t elements : {1U, 1000U, 100'000U}) rig.allReduceEverywhere(elements);
    std::vector<std::vector<float>> tensors(one.machines.size(), std::vector<float>(5000, 1.0F));
    std::vector<std::future<std::string>> done;
    for (std::size_t r = 0; r < tensors.size(); ++r) done.push_back(rig.job.allReduce(r, tensors[r]));
    for (auto& each : done) EXPECT_EQ(each.get(), "");
    for (const auto& tensor : tensors) EXPECT_EQ(tensor, std::vector<float>(5000, static_cast<float>(tensors.size())));
  }
}

TEST(DeviceGroups, SumsTensorsOfTheHostAndOfTheDeviceSideBySide) {
  Rig rig({"a", "b", "a", "b"});
  rig.job.joinAll();
  std::vector<std::future<std::string>> done;
  std::vector<std::vector<std::vector<float>>> tensors(4);
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t call = 0; call < 6; ++call) tensors[r].emplace_back(call % 3 * 40'000 + 7, 1.0F);
    for (std::size_t call = 0; call < 6; ++call) {
      std::vector<float>& tensor = tensors[r][call];
      done.push_back(call % 2 == 0 ? rig.allReduce(r, tensor) : rig.job.allReduce(r, tensor));
    }
  }
  for (auto& one : done) EXPECT_EQ(one.get(), "");
  for (const auto& ofRank : tensors) {
    for (const auto& tensor : ofRank) EXPECT_EQ(tensor, std::vector<float>(tensor.size(), 4.0F));
  }
}

Transport verbsOn(SimulatedVerbs& network) {
  return {.name = "verbs",
          .make = [open = network.opener()](
                      Loop& loop, const ChannelSettings& settings,
                      MessageReceiver& receiver) { return makeVerbsChannels(open, loop, settings, receiver); },
          .isRdma = true};
}

TEST(DeviceGroups, RdmaReadsTheLargePartsOfADevicesTensorsFromPinnedMemory) {
  SimulatedVerbs network(1);
  Rig rig({"a", "b"});
  rig.job.transports = {verbsOn(network), verbsOn(network)};
  rig.job.joinAll();
  constexpr std::size_t kElements = 400'000;
  for (int call = 0; call < 3; ++call) rig.allReduceEverywhere(kElements);
  EXPECT_EQ(network.counts().registrations, 6U) << "staging, slots and pinned staging of two ranks";
  EXPECT_GT(network.counts().readBytes, 3 * 3 * kElements / 2 * sizeof(float)) << "of what four halves of it are";
  EXPECT_LT(network.counts().sentBytes, network.counts().readBytes / 4);
}

TEST(DeviceGroups, WherePinnedMemoryMayNotBeLockedItIsCopiedAndEachRankSaysSo) {
  SimulatedVerbs network(1);
  network.limitLockable(1000);
  std::atomic<int> warnings = 0;
  Rig rig({"a", "b"});
  rig.job.transports = {verbsOn(network), verbsOn(network)};
  rig.job.warn = [&](const std::string& text) {
    EXPECT_NE(text.find("RDMA copies"), std::string::npos) << text;
    EXPECT_NE(text.find("a simulated limit"), std::string::npos) << text;
    ++warnings;
  };
  rig.job.joinAll();
  rig.allReduceEverywhere(400'000);
  EXPECT_EQ(warnings, 2);
  EXPECT_EQ(network.counts().readBytes, 0U);
}

// No thread waits on the host here.
TEST(DeviceGroups, WhatTheCallersStreamDoesNextSeesTheResult) {
  std::vector<float> one(50'000, 1.0F);
  std::vector<float> two(50'000, 2.0F);
  std::promise<std::vector<float>> seen;
  Rig rig({"a", "b"});
  rig.job.joinAll();
  auto first = rig.allReduce(0, one);
  rig.devices.byRank.at(0)->compute(&callersStream, [&] { seen.set_value(one); });
  auto second = rig.allReduce(1, two);
  EXPECT_EQ(seen.get_future().get(), std::vector<float>(50'000, 3.0F));
  EXPECT_EQ(first.get() + second.get(), "");
}

// Tensors are declared before the rig: a failed call may write to them until its group has ended.
TEST(DeviceGroups, EndingItWaitsForWhatIsEnqueued) {
  std::vector<float> one(200'000, 1.0F);
  std::vector<float> two(200'000, 2.0F);
  Rig rig({"a", "b"});
  rig.job.joinAll();
  auto first = rig.allReduce(0, one);
  auto second = rig.allReduce(1, two);
  std::thread ending([&] { rig.job.nodes[0]->group.reset(); });
  rig.job.nodes[1]->group.reset();
  ending.join();
  EXPECT_EQ(first.get() + second.get(), "");
  EXPECT_EQ(one, std::vector<float>(200'000, 3.0F));
  EXPECT_EQ(two, one);
}

// Rank 0's device waits in a call that rank 1 does not make.
struct OneInACall {
  explicit OneInACall(std::chrono::seconds endsWithin = std::chrono::seconds(30)) : rig({"a", "b"}) {
    rig.job.endsDeviceWithin = endsWithin;
    rig.job.joinAll();
    rig.allReduceEverywhere(100);
    call = rig.allReduce(0, tensor);
  }

  std::vector<float> tensor = std::vector<float>(200'000, 1.0F);
  Rig rig;
  std::future<std::string> call;
};

TEST(DeviceGroups, EndingItWaitsNoLongerThanTheSettingsSay) {
  OneInACall one(std::chrono::seconds(0));
  one.rig.job.nodes[0]->group.reset();
  EXPECT_NE(one.call.get().find("rank 0 ended group job, and its calls on CUDA tensors had not ended 0 s later"),
            std::string::npos);
}

TEST(DeviceGroups, EndingItIsOverWhenTheGroupFails) {
  OneInACall one;
  std::thread ending([&] { one.rig.job.nodes[0]->group.reset(); });
  one.rig.job.nodes[1]->group->abort(makeError(ErrorKind::Aborted, "rank 1 gave up"));
  ending.join();
  EXPECT_NE(one.call.get().find("rank 1 gave up"), std::string::npos);
}

// Not only gates: the machine's own part of the call waits for rank 2, which never makes it.
TEST(DeviceGroups, AFailureEndsWhatTheDeviceWaitsForOnItsMachine) {
  std::vector<float> tensor(300'000, 1.0F);
  std::promise<void> through;
  Rig rig({"a", "b", "a"});
  rig.job.joinAll();
  rig.allReduceEverywhere(100);
  auto call = rig.allReduce(0, tensor);
  rig.job.nodes[1]->group->abort(makeError(ErrorKind::Aborted, "rank 1 gave up"));
  EXPECT_NE(call.get().find("rank 1 gave up"), std::string::npos);
  rig.devices.byRank.at(0)->compute(&callersStream, [&] { through.set_value(); });
  through.get_future().get();
  try {
    rig.allReduce(0, tensor);
    FAIL() << "taken";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("rank 1 gave up"), std::string::npos);
  }
}

TEST(DeviceGroups, ACallThatIsNotMadeElsewhereTimesOut) {
  std::vector<float> tensor(100);
  Rig rig({"a", "b"});
  rig.job.joinAll();
  rig.allReduceEverywhere(100);
  EXPECT_NE(rig.allReduce(0, tensor, milliseconds(200)).get().find("rank 1"), std::string::npos);
}

TEST(DeviceGroups, ARankHasOneDevice) {
  std::vector<float> tensor(10);
  Rig rig({"a", "b"});
  rig.job.joinAll();
  rig.allReduceEverywhere(10);
  try {
    rig.job.nodes[0]->group->submit({.operands = {{tensor.data(), 10, {}}}, .signature = {"call"}, .done = nullptr},
                                    {.device = 1, .after = &callersStream, .joined = &callersStream});
    FAIL() << "taken";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("one device"), std::string::npos);
  }
}

TEST(DeviceGroups, ARankWithoutMemorySaysSoAndAllAreAsBefore) {
  Rig rig({"a", "b"});
  rig.devices.full = {1};
  rig.job.joinAll();
  EXPECT_EQ(rig.job.nodes[0]->group->equip(0, kLong), "");
  EXPECT_EQ(rig.job.nodes[1]->group->equip(0, kLong).substr(0, 3), "no ");
  for (const auto& node : rig.job.nodes) node->group->unequip();
  rig.devices.full.clear();
  rig.allReduceEverywhere(1000);
}

}  // namespace
}  // namespace fairring
