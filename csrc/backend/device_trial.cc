#include "backend/device_trial.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "backend/calls_on_trial.h"
#include "backend/cuda_device.h"
#include "base/fields.h"

namespace fairring {
namespace {

using TrialClock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::chrono::seconds kMeasuring{5};     // for the figures of all sizes
constexpr std::chrono::seconds kEarlierWork{20};  // of the program's
constexpr std::chrono::seconds kTrialMaking{60};  // for connections

// 0: none.
std::chrono::milliseconds withinTimeout(std::chrono::milliseconds limit, std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? std::min(limit, timeout) : limit;
}

// How long a rank that is through waits for the others.
std::chrono::milliseconds beyond(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? timeout + kTrialMaking : timeout;
}

// What a rank tells the others of its calls of one size.
struct StageOnTrial {
  std::string reason;         // empty: all went well
  std::uint64_t elapsed = 0;  // microseconds of them
  std::vector<TrialFigures> figures = {};

  static void fields(auto& row, auto& stage) { row(stage.reason, stage.elapsed, stage.figures); }
};

// The sizes from the least on, up to 8 MiB.
std::vector<std::uint64_t> sizesFrom(std::uint64_t least) {
  constexpr std::uint64_t kMost = 8 << 20;
  std::vector<std::uint64_t> sizes{std::min(least, kMost)};
  for (const std::uint64_t size : {std::uint64_t{64} << 10, std::uint64_t{1} << 20, kMost}) {
    if (size > sizes.back()) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

DeviceTrial::DeviceTrial(Membership& real, const StockNccl& stock, c10d::Backend& nccl, const c10::Device& device,
                         std::uint64_t leastBytes, std::chrono::milliseconds timeout,
                         std::function<bool()> areCallsOver)
    : real_(real),
      stock_(stock),
      nccl_(nccl),
      device_(device),
      leastBytes_(leastBytes),
      timeout_(timeout),
      areCallsOver_(std::move(areCallsOver)),
      gates_(device) {}

// Of all ranks.
std::string DeviceTrial::firstReason(const std::string& question, const std::function<std::string()>& attempt) {
  return real_.devices().firstReason(question, reasonOf(attempt), beyond(timeout_));
}

TrialVerdict DeviceTrial::run(bool& isLasting) {
  isLasting = false;
  return inGroup([&](Membership& trial) {
    const std::string reason = firstReason("device", [&] { return gates_.run(*groupOf(trial).accelerator()); });
    if (!reason.empty()) return TrialVerdict::allNccls(reason);
    TrialVerdict verdict = measured(trial);
    isLasting = !hasFailed_;
    if (gates_.heldBack() > 0 && !verdict.figures.empty()) {
      verdict.figures +=
          concat("; here ", gates_.heldBack(), " of ", 2 * GateTrial::kSideStreams, " side streams stand behind gates");
    }
    return verdict;
  });
}

TrialVerdict DeviceTrial::heed(const TrialVerdict& earlier) {
  if (!earlier.whyNccls.empty()) return earlier;
  return inGroup([&](Membership&) { return earlier; });
}

// The group goes on with the accelerator if the verdict is good.
TrialVerdict DeviceTrial::inGroup(const std::function<TrialVerdict(Membership&)>& verdictOf) {
  const std::unique_ptr<Membership> trial = real_.trial(timeout_);
  const std::stop_callback ended(trial->failure(), [&] { endIfRankIsGone(*trial); });
  const auto leave = [&](const std::exception_ptr& cause) {
    const std::string why = reasonOf([&]() -> std::string { std::rethrow_exception(cause); });
    trial->abort(makeError(ErrorKind::PeerLeft, "rank ", real_.options().rank, " of group ", real_.options().name,
                           " left the trial of calls on CUDA tensors: ", why));
  };
  try {
    if (std::string reason = begin(*trial); !reason.empty()) return TrialVerdict::allNccls(std::move(reason));
    TrialVerdict verdict = verdictOf(*trial);
    if (verdict.whyNccls.empty()) real_.devices().adopt(groupOf(*trial).accelerator());
    return verdict;
  } catch (const NcclsFailure& failure) {
    leave(failure.cause);
    std::rethrow_exception(failure.cause);
  } catch (...) {
    leave(std::current_exception());
    throw;
  }
}

// Connects the trial's ranks, waits until the program's earlier work is over, and makes the accelerator and staging.
// Returns why a rank could not.
std::string DeviceTrial::begin(Membership& trial) {
  std::string reason = firstReason("links", [&]() -> std::string {
    Group& group = groupOf(trial);
    group.awaitDevice(timeout_);
    const auto isDecided = [&] { return group.isLinked() || group.error(); };
    const bool isInTime = GateTrial::comesBefore(TrialClock::now() + kTrialMaking, isDecided);
    if (const Error error = group.error()) return error.text();
    return isInTime ? "" : concat("the trial's ranks were not connected after ", kTrialMaking.count(), " s");
  });
  if (!reason.empty()) return reason;
  reason = firstReason(
      "busy", [&] { return gates_.awaitEarlierWork(withinTimeout(kEarlierWork, timeout_ / 2), areCallsOver_); });
  if (!reason.empty()) return reason;
  return firstReason("trial's memory", [&] { return groupOf(trial).equip(device_.index(), timeout_); });
}

// The group itself may not be connected yet, and its ranks wait for the answers of one that gives none any more. Before
// the trial's ranks are connected nobody knows a death from a firewall's refusal, which is a verdict.
void DeviceTrial::endIfRankIsGone(const Membership& trial) {
  const std::shared_ptr<Group> group = trial.groupIfMade();
  if (!group || !group->isLinked()) return;
  const Error error = group->error();
  if (error && (error.kind() == ErrorKind::PeerDied || error.kind() == ErrorKind::PeerLeft)) real_.abort(error);
}

Group& DeviceTrial::groupOf(Membership& trial) const { return trial.group(withinTimeout(kTrialMaking, timeout_)); }

TrialVerdict DeviceTrial::measured(Membership& trial) {
  std::optional<c10::Stream> end;
  const std::vector<std::uint64_t> sizes = sizesFrom(leastBytes_);
  std::vector<TrialFigures> bySize;
  microseconds elapsed{0};  // of the slowest rank in each stage, so all ranks know it
  std::string reason;
  // A stage of all ranks; how long it took.
  const auto stage = [&](const std::string& question, const std::function<std::string(StageOnTrial&)>& attempt) {
    StageOnTrial mine;
    const auto began = TrialClock::now();
    mine.reason = reasonOf([&] { return attempt(mine); });
    hasFailed_ = hasFailed_ || !mine.reason.empty();
    mine.elapsed =
        static_cast<std::uint64_t>(std::chrono::duration_cast<microseconds>(TrialClock::now() - began).count());
    const std::vector<std::string> answers = real_.devices().answersOfAll(question, toText(mine), beyond(timeout_));
    const std::vector<RankFacts> facts = real_.factsOfAll(timeout_);
    microseconds slowest{0};
    std::vector<TrialFigures> byRank;
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
      const auto one =
          valueOf<StageOnTrial>(answers[rank], ErrorKind::Connection, "rank ", rank,
                                " told in the trial of its calls on CUDA tensors ", shownOf(answers[rank]));
      if (reason.empty() && !one.reason.empty()) reason = rankNamed(facts, rank) + one.reason;
      slowest = std::max(slowest, microseconds(one.elapsed));
      std::ranges::copy(one.figures, std::back_inserter(byRank));
    }
    if (reason.empty() && !byRank.empty()) bySize.push_back(slowestOf(byRank));
    return slowest;
  };
  const std::chrono::milliseconds patience = withinTimeout(kTrialMaking, timeout_);
  std::optional<CallsOnTrial> first;
  stage("memory of the first calls", [&](StageOnTrial&) {
    end = newCudaStream(device_.index());
    first.emplace(trial, stock_, nccl_, *end, sizes.front(), at::kBFloat16);
    return "";
  });
  if (reason.empty()) stage("first calls", [&](StageOnTrial&) { return first->check(patience); });
  first.reset();
  microseconds last{0};
  for (std::size_t i = 0; i < sizes.size() && reason.empty(); ++i) {
    if (i > 0 && elapsed + last * (sizes[i] / sizes[i - 1]) > kMeasuring) break;
    std::optional<CallsOnTrial> calls;
    elapsed += stage(concat("memory of calls ", i), [&](StageOnTrial&) {
      calls.emplace(trial, stock_, nccl_, *end, sizes[i], at::kFloat);
      calls->awaitCallers();
      return "";
    });
    if (!reason.empty()) break;
    const microseconds checked = stage(
        concat("sums ", i), [&](StageOnTrial&) { return calls->check(withinTimeout(CallsOnTrial::kLimit, timeout_)); });
    elapsed += checked;
    if (!reason.empty() || elapsed + checked * CallsOnTrial::kMeasuredToChecked > kMeasuring) break;
    last = stage(concat("times ", i), [&](StageOnTrial& mine) {
      TrialFigures figures{.bytes = sizes[i], .times = {}};
      std::string why = calls->measure(figures);
      if (why.empty()) mine.figures.push_back(std::move(figures));
      return why;
    });
    elapsed += last;
  }
  if (!reason.empty()) return TrialVerdict::allNccls(reason);
  if (bySize.empty()) {
    return TrialVerdict::allNccls(concat("calls of ", sizes.front(), " bytes are too slow to be measured within ",
                                         kMeasuring.count(), " s: six of them took ", elapsed.count(), " us"));
  }
  TrialVerdict verdict = verdictOf(bySize);
  verdict.figures += concat("; measured in ", elapsed.count() / 1000, " ms");
  return verdict;
}

}  // namespace fairring
