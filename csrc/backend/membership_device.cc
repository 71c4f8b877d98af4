// What Membership does for the group's calls on a device: the ranks of a machine make its level 0 together. They find
// each other through the store, under "device/<the first of them>/<how many texts there were before>". All ranks tell
// each other there what speaks against it, under "device/<question>/<rank>". Nobody waits there, or for NCCL, once the
// group has failed.
#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "backend/cuda_device.h"
#include "backend/membership.h"
#include "base/fields.h"

namespace fairring {

namespace {

struct DevicesHere {  // that a rank's process sees
  std::string obstacle;
  int multiprocessors = 0;  // of the smallest

  static void fields(auto& row, auto& devices) { row(devices.obstacle, devices.multiprocessors); }
};

constexpr char kAnswer = '.';  // before each answer, since not every store takes an empty value

// Gives every rank the first rank's text, for one text after another.
std::function<std::string(const std::string&)> throughStore(const c10::intrusive_ptr<c10d::Store>& store,
                                                            std::string key, bool isFirst, std::string who) {
  return [store, key = std::move(key), isFirst, who = std::move(who), texts = 0](const std::string& mine) mutable {
    const std::string where = concat(key, "/", texts++);
    try {
      if (isFirst) store->set(where, mine);
      return isFirst ? mine : store->get_to_str(where);
    } catch (const std::exception& e) {
      throw Failure(
          makeError(ErrorKind::Connection, who, " did not meet for their first call on CUDA tensors: ", e.what()));
    }
  };
}

}  // namespace

void Membership::equip(GroupSettings& settings) {
  settings.makeAccelerator = [this](int device, const auto& ranks, auto timeout) {
    return makeDevice(device, ranks, timeout);
  };
}

std::unique_ptr<Membership> Membership::trial(std::chrono::milliseconds timeout) const {
  MembershipOptions options = options_;
  options.name += "/trial";
  options.traceDirectory.clear();
  options.endsProcess = options.endsProcessWithDevice = false;
  auto trial = std::make_unique<Membership>(c10::make_intrusive<c10d::PrefixStore>("trial", store(timeout)),
                                            std::move(options), [](Completion&, bool) {});
  trial->hasFailedBeside_ = hasFailed_;
  return trial;
}

// On a connection of its own: waiting on a store keeps all others off that store's.
c10::intrusive_ptr<c10d::Store> Membership::deviceStore(std::chrono::milliseconds timeout) {
  auto store = c10::make_intrusive<AbortableStore>(this->store(timeout)->clone(), hasFailed_);
  store->setTimeout(timeout);
  return store;
}

std::string Membership::deviceKey(const std::string& what) const {
  const std::string name = "device/" + what;
  return bootstrap_ ? bootstrap_->key(name) : name;
}

std::vector<std::string> Membership::answersOfAll(const std::string& question, const std::string& mine,
                                                  std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    check(!answered_.contains(question), ErrorKind::Usage, "rank ", options_.rank, " of group ", options_.name,
          ": the question \"", question, "\" was answered before, and the store still holds the answers: a fault in ",
          "Fairring, which must give each question of a group a name of its own");
  }
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) keys.push_back(deviceKey(concat(question, "/", rank)));
  try {
    const auto store = deviceStore(timeout);
    store->set(keys.at(static_cast<std::size_t>(options_.rank)), kAnswer + mine);
    std::vector<std::string> answers;
    for (const auto& value : store->multiGet(keys)) answers.emplace_back(value.begin() + 1, value.end());
    const std::lock_guard lock(mutex_);
    answered_.insert(question);
    return answers;
  } catch (const std::exception& e) {
    const std::shared_ptr<Group> group = groupIfMade();
    if (group && group->error()) throw Failure(group->error());  // which has ended the wait
    throw Failure(makeError(ErrorKind::Connection, "rank ", options_.rank, " of group ", options_.name,
                            ": the group's ranks did not meet for their first call on CUDA tensors: ", e.what()));
  }
}

std::string Membership::askOfDevices(std::vector<RankFacts>& facts, std::chrono::milliseconds timeout) {
  group(timeout).awaitDevice();
  const DevicesHere mine{.obstacle = deviceObstacleHere(), .multiprocessors = fewestMultiprocessors()};
  const std::vector<std::string> answers = answersOfAll("devices", toText(mine), timeout);
  std::string reason;
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const auto there = valueOf<DevicesHere>(answers[rank], ErrorKind::Connection, "rank ", rank,
                                            " told of its CUDA devices ", shownOf(answers[rank]));
    facts[rank].device.multiprocessors = there.multiprocessors;
    if (reason.empty() && !there.obstacle.empty()) {
      reason = rankNamed(facts, rank) + there.obstacle;
    }
  }
  return reason;
}

std::string Membership::firstReason(const std::string& question, const std::string& mine,
                                    std::chrono::milliseconds timeout) {
  const std::vector<RankFacts> facts = factsOfAll(timeout);
  const std::vector<std::string> reasons = answersOfAll(question, mine, timeout);
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (!reasons[rank].empty()) return rankNamed(facts, rank) + reasons[rank];
  }
  return {};
}

void Membership::noteDeviceWay(const std::string& words) {
  const std::lock_guard lock(mutex_);
  deviceWay_ = words;
  if (group_) group_->noteDeviceWay(words);
}

std::shared_ptr<Accelerator> Membership::makeDevice(int device, const std::vector<int>& machineRanks,
                                                    std::chrono::milliseconds timeout) {
  if (tried_) return std::exchange(tried_, nullptr);
  const auto self = std::ranges::find(machineRanks, options_.rank);
  const auto store = deviceStore(timeout);
  return makeAccelerator({
      .device = device,
      .rank = options_.rank,
      .index = static_cast<int>(self - machineRanks.begin()),
      .count = static_cast<int>(machineRanks.size()),
      .fromFirst =
          throughStore(store, deviceKey(concat(machineRanks.front())), self == machineRanks.begin(),
                       concat("rank ", options_.rank, " of group ", options_.name, ": the ranks of its machine")),
      .ncclLimits = options_.ncclLimits,
      .isOver = [here = hasFailed_, beside = hasFailedBeside_] { return here->rings() || (beside && beside->rings()); },
      .timeout = timeout,
  });
}

}  // namespace fairring
