#include "backend/device_rendezvous.h"

#include <algorithm>
#include <utility>

#include "backend/abortable_store.h"
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

struct Answers {
  std::vector<std::string> byRank;

  static void fields(auto& row, auto& answers) { row(answers.byRank); }
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

// On a connection of its own: waiting on a store keeps all others off that store's.
c10::intrusive_ptr<c10d::Store> DeviceRendezvous::store(std::chrono::milliseconds timeout) const {
  auto store = c10::make_intrusive<AbortableStore>(membership_.store(timeout)->clone(), membership_.failure());
  store->setTimeout(timeout);
  return store;
}

std::vector<std::string> DeviceRendezvous::answersOfAll(const std::string& question, const std::string& mine,
                                                        std::chrono::milliseconds timeout) {
  const MembershipOptions& ranks = membership_.options();
  check(!answered_.contains(question), ErrorKind::Usage, "rank ", ranks.rank, " of group ", ranks.name,
        ": the question \"", question, "\" was answered before, and the store still holds the answers: a fault in ",
        "Fairring, which must give each question of a group a name of its own");
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(ranks.size));
  for (int rank = 0; rank < ranks.size; ++rank) {
    keys.push_back(membership_.key(concat("device/", question, "/", rank)));
  }
  try {
    const auto store = this->store(timeout);
    store->set(keys.at(static_cast<std::size_t>(ranks.rank)), kAnswer + mine);
    // One rank reads what all have written, and writes it for all: else the store would have a read of each from each.
    Answers answers;
    const std::string all = membership_.key(concat("device/", question, "/all"));
    if (ranks.rank == 0) {
      for (const auto& value : store->multiGet(keys)) answers.byRank.emplace_back(value.begin() + 1, value.end());
      store->set(all, toText(answers));
    } else {
      const std::string text = store->get_to_str(all);
      answers =
          valueOf<Answers>(text, ErrorKind::Connection, "rank 0 told of the answers of all ranks ", shownOf(text));
    }
    answered_.insert(question);
    return answers.byRank;
  } catch (const std::exception& e) {
    if (const Error error = membership_.error()) throw Failure(error);  // which has ended the wait
    throw Failure(makeError(ErrorKind::Connection, "rank ", ranks.rank, " of group ", ranks.name,
                            ": the group's ranks did not meet for their first call on CUDA tensors: ", e.what()));
  }
}

std::string DeviceRendezvous::firstReason(const std::string& question, const std::string& mine,
                                          std::chrono::milliseconds timeout) {
  const std::vector<RankFacts> facts = membership_.factsOfAll(timeout);
  const std::vector<std::string> reasons = answersOfAll(question, mine, timeout);
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (!reasons[rank].empty()) return rankNamed(facts, rank) + reasons[rank];
  }
  return {};
}

std::string DeviceRendezvous::askOfDevices(std::vector<RankFacts>& facts, std::chrono::milliseconds timeout) {
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

std::shared_ptr<Accelerator> DeviceRendezvous::make(int device, const std::vector<int>& machineRanks,
                                                    std::chrono::milliseconds timeout) {
  if (tried_) return std::exchange(tried_, nullptr);
  const MembershipOptions& ranks = membership_.options();
  const auto self = std::ranges::find(machineRanks, ranks.rank);
  const NcclRanks machine{
      .index = static_cast<int>(self - machineRanks.begin()),
      .count = static_cast<int>(machineRanks.size()),
      .fromFirst = throughStore(store(timeout), membership_.key(concat("device/", machineRanks.front())),
                                self == machineRanks.begin(),
                                concat("rank ", ranks.rank, " of group ", ranks.name, ": the ranks of its machine"))};
  const auto isOver = [failure = membership_.failure()] { return failure.stop_requested(); };
  return makeAccelerator(device, ranks.rank, machine, {timeout, isOver}, ranks.ncclLimits);
}

}  // namespace fairring
