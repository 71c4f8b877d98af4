// The pipeline by itself, with exchanges that do nothing until the test says so.
#include "engine/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/cost_rows.h"

namespace fairring {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

SliceId bulk(std::uint64_t sequence) { return {SliceQueue::HostBulk, sequence}; }

struct Started {
  SliceId slice;
  std::size_t step;
  Step what;
  bool operator==(const Started&) const = default;
};

class ManualExchange final : public Exchange {
 public:
  void admit(const std::shared_ptr<Slice>& slice) override { admitted.push_back(slice->id); }
  void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) override {
    started.push_back({slice->id, step, (*slice->plan)[step]});
    pending.emplace(std::pair(slice->id, step), std::move(events));
  }
  std::set<int> missing() const override { return {}; }
  bool needs(int, const Watermarks&) const override { return false; }
  void stop() override { pending.clear(); }

  void finish(SliceId slice, std::size_t step) { becomeReady(slice, step)(); }
  // Returns what releases the step.
  std::function<void()> becomeReady(SliceId slice, std::size_t step) {
    const Events events = pending.extract({slice, step}).mapped();
    events.ready();
    return events.released;
  }
  std::vector<SliceId> slicesIn(Step step) const {
    std::vector<SliceId> slices;
    for (const Started& one : started) {
      if (one.what == step) slices.push_back(one.slice);
    }
    return slices;
  }

  std::vector<SliceId> admitted;
  std::vector<Started> started;
  std::map<std::pair<SliceId, std::size_t>, Events> pending;
};

constexpr Step kDown{Verb::ReduceScatter, 0};
constexpr Step kUp{Verb::AllGather, 0};

// Two machines of one rank; staging for a few slices.
struct Rig {
  explicit Rig(std::uint64_t staging = 4 * kMiB, std::uint64_t slice = kMiB, std::uint64_t express = 0)
      : planner(Topology({{"a", ""}, {"b", ""}}), {staging, slice, builtInRows("tcp")}),
        pipeline(planner, 0, {&machine, &rails, 64, memory.data(), staging, express}) {
    pipeline.open();
  }
  int submit(std::uint64_t elements, std::shared_ptr<Arrival> inputs = nullptr) {
    const int call = calls++;
    pipeline.submit({.operands = {{tensor.data(), elements, {.dtype = DType::Float32}}},
                     .inputs = std::move(inputs),
                     .signature = {"call " + std::to_string(call)},
                     .done = [this, call](const Error& error) { done.emplace_back(call, error.text()); }},
                    0);
    return call;
  }
  void finishAny(std::mt19937& random) {
    std::vector<std::pair<ManualExchange*, std::pair<SliceId, std::size_t>>> running;
    for (ManualExchange* exchange : {&machine, &rails}) {
      for (const auto& [key, events] : exchange->pending) running.emplace_back(exchange, key);
    }
    ASSERT_FALSE(running.empty()) << "nothing runs, but calls are not finished: a deadlock";
    const auto& [exchange, key] = running[random() % running.size()];
    exchange->finish(key.first, key.second);
  }

  bool isOver() const {
    return done.size() == static_cast<std::size_t>(calls) && machine.pending.empty() && rails.pending.empty();
  }

  std::vector<std::byte> memory{1};  // never touched: the exchanges do nothing
  std::vector<float> tensor{0.0F};
  ManualExchange machine;
  ManualExchange rails;
  Planner planner;
  Pipeline pipeline;
  int calls = 0;
  std::vector<std::pair<int, std::string>> done;
};

TEST(Pipeline, ACallIsDoneWhenAllItsSlicesAre) {
  Rig rig;
  rig.submit(3 * kMiB / 4 + 5);
  std::mt19937 random(1);
  while (rig.done.empty()) rig.finishAny(random);
  EXPECT_TRUE(rig.isOver());
  EXPECT_GE(rig.machine.slicesIn(kUp).size(), 3U);
}

TEST(Pipeline, AnEmptyTensorIsACallLikeAnyOther) {
  Rig rig;
  rig.submit(0);
  EXPECT_EQ(rig.machine.slicesIn(kDown), std::vector{bulk(0)});
  EXPECT_TRUE(rig.done.empty());
}

TEST(Pipeline, StepsOfOneLevelAndDirectionBeginInSliceOrder) {
  Rig rig;
  rig.submit(kMiB);
  const auto down = rig.machine.slicesIn(kDown);
  ASSERT_GE(down.size(), 2U);
  rig.machine.finish(bulk(1), 0);  // out of order on purpose
  EXPECT_TRUE(rig.rails.started.empty());
  rig.machine.finish(bulk(0), 0);
  ASSERT_EQ(rig.rails.started.size(), 2U);
  EXPECT_EQ(rig.rails.started[0].slice, bulk(0));
  EXPECT_EQ(rig.rails.started[1].slice, bulk(1));
}

TEST(Pipeline, StagingBoundsTheSlicesInFlight) {
  Rig rig(4 * kMiB, kMiB);
  rig.submit(64 * kMiB);
  EXPECT_GE(rig.machine.admitted.size(), 2U);
  EXPECT_LE(rig.machine.admitted.size(), 4U);
}

TEST(Pipeline, ASliceThatIsNotReleasedHoldsBackTheOneThatWouldUseItsFlags) {
  Rig rig;
  ManualExchange machine;
  Pipeline pipeline(rig.planner, 0, {&machine, &rig.rails, 2, rig.memory.data(), 4 * kMiB});
  pipeline.open();
  const auto call = [&] {
    pipeline.submit({.operands = {{rig.tensor.data(), 1, {}}}, .signature = {""}, .done = [](const Error&) {}}, 0);
  };
  for (int i = 0; i < 3; ++i) call();
  EXPECT_EQ(machine.admitted.size(), 2U);
  const auto finishAll = [&](SliceId slice) {
    std::function<void()> released;
    while (machine.pending.contains({slice, 0})) released = machine.becomeReady(slice, 0);
    return released;
  };
  const auto first = finishAll(bulk(0));
  machine.finish(bulk(1), 0);
  EXPECT_EQ(machine.admitted.size(), 2U) << "slice 2 would use the mark of slice 0";
  EXPECT_TRUE(first);
}

TEST(Pipeline, NothingMovesBeforeItIsOpened) {
  Rig rig;
  Pipeline closed(rig.planner, 0, {&rig.machine, &rig.rails, 64, rig.memory.data(), 4 * kMiB});
  closed.submit({.operands = {{rig.tensor.data(), 8, {}}}, .signature = {"early"}, .done = [](const Error&) {}}, 0);
  EXPECT_TRUE(rig.machine.admitted.empty());
  closed.open();
  EXPECT_EQ(rig.machine.admitted.size(), 1U);
}

TEST(Pipeline, ACallWhoseInputsComeLateKeepsItsPlace) {
  Rig rig;
  const auto inputs = std::make_shared<Arrival>(2);
  rig.submit(8, inputs);
  rig.submit(8);
  inputs->come();
  rig.pipeline.resume();
  EXPECT_TRUE(rig.machine.admitted.empty()) << "the first reads what is not there, the second stands behind it";
  inputs->whenOver([&](const Error& error) {
    EXPECT_FALSE(error);
    rig.pipeline.resume();
  });
  inputs->come();
  EXPECT_EQ(rig.machine.admitted, (std::vector{bulk(0), bulk(1)}));
  std::mt19937 random(1);
  while (!rig.isOver()) rig.finishAny(random);
  EXPECT_EQ(rig.done.front().first, 0);
}

TEST(Pipeline, ACallWhoseInputsNeverComeIsNotBegun) {
  Rig rig;
  const auto inputs = std::make_shared<Arrival>(1);
  rig.submit(8, inputs);
  inputs->come(makeError(ErrorKind::System, "the device failed"));
  rig.pipeline.resume();
  EXPECT_TRUE(rig.machine.admitted.empty());
}

TEST(Pipeline, FailingEndsEveryCallOnceAndStartsNothingMore) {
  Rig rig;
  rig.submit(kMiB);
  rig.submit(10);
  const std::size_t started = rig.machine.started.size();
  rig.machine.stop();
  rig.rails.stop();
  rig.pipeline.fail(makeError(ErrorKind::PeerDied, "rank 1 died"));
  ASSERT_EQ(rig.done.size(), 2U);
  EXPECT_EQ(rig.done[0].second, "rank 1 died");
  EXPECT_EQ(rig.machine.started.size(), started);
}

TEST(Pipeline, ASmallCallDoesNotStandBehindALargeOneNorTheOtherWayRound) {
  Rig rig(4 * kMiB, kMiB, 512 << 10);
  rig.submit(64 * kMiB);
  const std::size_t before = rig.machine.admitted.size();
  const int small = rig.submit(100);
  ASSERT_EQ(rig.machine.admitted.size(), before + 1) << "though the large call's slices fill the staging";
  const SliceId slice = rig.machine.admitted.back();
  EXPECT_EQ(slice.queue, SliceQueue::HostExpress);
  const std::size_t steps = rig.planner.choose(100 * sizeof(float)).plan.size();
  for (std::size_t step = 0; step < steps; ++step)
    (step + 1 == steps || step == 0 ? rig.machine : rig.rails).finish(slice, step);
  ASSERT_EQ(rig.done.size(), 1U);
  EXPECT_EQ(rig.done[0].first, small);

  for (int i = 0; i < 1000; ++i) rig.submit(100);  // of which none ends
  rig.machine.finish(bulk(0), 0);
  EXPECT_FALSE(rig.rails.slicesIn({Verb::AllReduce, 1}).empty() &&
               rig.rails.slicesIn({Verb::ReduceScatter, 1}).empty());
}

// A device carries out all steps of its slices, which come cut and placed.
struct DeviceRig : Rig {
  DeviceRig() { pipeline.attach(device); }
  void submitOnDevice() {
    const int call = calls++;
    pipeline.submitOnDevice({.number = static_cast<std::uint64_t>(call),
                             .signature = {"call " + std::to_string(call)},
                             .done = [this, call](const Error& error) { done.emplace_back(call, error.text()); }});
  }
  // after: the slices below it have to be released first.
  void add(std::uint64_t after, bool last) {
    auto slice = std::make_shared<Slice>();
    slice->id = onDevice(added++);
    slice->plan = plan;
    pipeline.add(std::move(slice), {.bytes = kMiB, .after = after, .last = last});
  }
  static SliceId onDevice(std::uint64_t sequence) { return {SliceQueue::Device, sequence}; }

  std::shared_ptr<const Plan> plan = std::make_shared<const Plan>(Plan{kDown, kUp});
  std::uint64_t added = 0;
  ManualExchange device;
};

TEST(Pipeline, SlicesOfADeviceAreAdmittedInOrderWhenTheirPlacesAreFree) {
  DeviceRig rig;
  rig.submitOnDevice();
  rig.add(0, false);
  rig.add(0, false);
  rig.add(2, false);
  rig.add(0, true);
  EXPECT_EQ(rig.device.admitted.size(), 2U);
  const auto finish = [&rig](std::uint64_t sequence) {
    rig.device.finish(DeviceRig::onDevice(sequence), 0);
    rig.device.finish(DeviceRig::onDevice(sequence), 1);
  };
  rig.device.finish(DeviceRig::onDevice(0), 0);
  finish(1);
  EXPECT_EQ(rig.device.admitted.size(), 2U) << "slice 0 has its place still";
  rig.device.finish(DeviceRig::onDevice(0), 1);
  EXPECT_EQ(rig.device.admitted.size(), 4U);
  EXPECT_TRUE(rig.machine.admitted.empty() && rig.rails.admitted.empty());
}

TEST(Pipeline, ACallOnADeviceIsDoneWhenItsLastSliceIs) {
  DeviceRig rig;
  rig.submitOnDevice();
  rig.add(0, false);
  rig.device.finish(DeviceRig::onDevice(0), 0);
  rig.device.finish(DeviceRig::onDevice(0), 1);
  EXPECT_TRUE(rig.done.empty()) << "more of its slices may come";
  rig.add(1, true);
  rig.submitOnDevice();
  rig.device.finish(DeviceRig::onDevice(1), 0);
  rig.device.finish(DeviceRig::onDevice(1), 1);
  ASSERT_EQ(rig.done.size(), 1U);
  EXPECT_EQ(rig.done[0].first, 0);
  EXPECT_TRUE(rig.pipeline.hasCalls(SliceQueue::Device));
  EXPECT_EQ(rig.pipeline.completed()[SliceQueue::Device], 2U);
}

TEST(Pipeline, ACallOnADeviceAndOneOnTheHostDoNotWaitForEachOther) {
  DeviceRig rig;
  rig.submitOnDevice();
  const int onHost = rig.submit(10);
  std::mt19937 random(1);
  while (rig.done.empty()) rig.finishAny(random);
  EXPECT_EQ(rig.done[0].first, onHost);
  EXPECT_FALSE(rig.pipeline.hasCalls(SliceQueue::HostBulk));
  rig.submit(64 * kMiB);
  rig.add(0, true);
  EXPECT_EQ(rig.device.admitted.size(), 1U) << "though the host's slices fill their staging";
}

// When the group fails every gate opens, and what streams do then nobody knows.
TEST(Pipeline, ACallOnADeviceIsNeverSaidToHaveWrittenNothing) {
  DeviceRig rig;
  rig.submitOnDevice();
  Pipeline closed(rig.planner, 0, {&rig.machine, &rig.rails, 64, rig.memory.data(), 4 * kMiB});
  closed.submit({.operands = {{rig.tensor.data(), 8, {}}}, .number = 7, .signature = {""}, .done = [](const Error&) {}},
                0);
  EXPECT_TRUE(rig.pipeline.untouched().empty());
  EXPECT_EQ(closed.untouched(), std::set<std::uint64_t>{7});
}

TEST(Pipeline, RandomCompletionsNeverStallAndCompleteEveryCall) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Rig rig(2 * kMiB, 256 << 10, seed % 2 * (64 << 10));
    const int calls = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < calls; ++i) rig.submit(random() % (random() % 2 == 0 ? 1000 : kMiB / 2));
    while (!rig.isOver()) {
      rig.finishAny(random);
      if (HasFatalFailure()) return;
    }
    for (const Step step : {kDown, kUp}) {
      for (const SliceQueue queue : {SliceQueue::HostBulk, SliceQueue::HostExpress}) {
        auto slices = rig.machine.slicesIn(step);
        std::erase_if(slices, [queue](SliceId slice) { return slice.queue != queue; });
        EXPECT_TRUE(std::ranges::is_sorted(slices)) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace fairring
