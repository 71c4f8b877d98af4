#include "backend/monitored_barrier.h"

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <utility>

#include "backend/fairring_backend.h"
#include "backend/gil.h"

namespace fairring {

namespace {

constexpr std::uint16_t kContext = 1;  // of its messages
constexpr std::byte kIsHere{1};
constexpr std::byte kPasses{2};
constexpr std::byte kDoesNotPass{3};

}  // namespace

struct MonitoredBarrier::Heard {
  enum class State : std::uint8_t { Awaited, Over, GivenUp };

  std::byte word{};
  std::atomic<State> state = State::Awaited;
  std::promise<Error> over;
  std::future<Error> whenOver = over.get_future();

  bool settle(State as) {
    State awaited = State::Awaited;
    return state.compare_exchange_strong(awaited, as);
  }
};

MonitoredBarrier::MonitoredBarrier(Group& group, int rank, int size, std::uint32_t number)
    : group_(group), rank_(rank), size_(size), label_{kContext, number} {}

// A rank that comes when no other waits for it any more is told so.
std::shared_ptr<MonitoredBarrier::Heard> MonitoredBarrier::expect(int from) {
  auto heard = std::make_shared<Heard>();
  group_.receive({from, label_, &heard->word, 1,
                  [heard, &group = group_, label = label_, tells = rank_ == 0](const Error& error, int source) {
                    if (heard->settle(Heard::State::Over)) return heard->over.set_value(error);
                    if (tells && !error) tell(group, label, source, kDoesNotPass);
                  }});
  return heard;
}

void MonitoredBarrier::tell(Group& group, const Label& label, int to, std::byte word) {
  const auto kept = std::make_shared<std::byte>(word);
  group.send({to, label, kept.get(), 1, [kept](const Error&) {}});
}

// A group's error ends the barrier; any other error is that rank's.
bool MonitoredBarrier::hasCome(Heard& heard, const Limit& limit) const {
  const bool isOver = heard.whenOver.wait_until(limit.end) == std::future_status::ready;
  if (!isOver && heard.settle(Heard::State::GivenUp)) return false;
  const Error error = heard.whenOver.get();
  if (const Error groups = error ? group_.error() : Error()) throw Failure(groups);
  return !error;
}

void MonitoredBarrier::admit(const Limit& limit, bool waitsForAll) {
  std::map<int, std::shared_ptr<Heard>> others;
  for (int rank = 1; rank < size_; ++rank) others[rank] = expect(rank);
  std::vector<int> here;
  std::vector<int> missing;
  for (const auto& [rank, heard] : others) {
    const bool isSettled = !missing.empty() && !waitsForAll;  // but ranks that have come are told
    const Limit rest = isSettled ? Limit{limit.whole, Clock::now()} : limit;
    (hasCome(*heard, rest) ? here : missing).push_back(rank);
  }
  for (const int rank : here) tell(group_, label_, rank, missing.empty() ? kPasses : kDoesNotPass);
  if (missing.empty()) return;
  throw Failure(missed(waitsForAll ? missing : std::vector{missing.front()}, limit));
}

// Here and in pass() with c10d's wording, which programs look for.
Error MonitoredBarrier::missed(const std::vector<int>& ranks, const Limit& limit) const {
  if (limit.whole.count() <= 0) {
    return makeError(ErrorKind::Timeout, "[Rank 0]: Rank 0 timed out in monitoredBarrier after ", limit.whole.count(),
                     " ms, before others could come: give it a longer timeout");
  }
  return makeError(ErrorKind::Timeout, "[Rank 0]: Rank", ranks.size() > 1 ? "s " : " ", joined(ranks, ", "),
                   " failed to pass monitoredBarrier in ", limit.whole.count(), " ms")
      .about(ranks);
}

void MonitoredBarrier::pass(const Limit& limit) {
  const auto answer = expect(0);
  tell(group_, label_, 0, kIsHere);
  const bool isAnswered = hasCome(*answer, limit);
  if (isAnswered && answer->word == kPasses) return;
  throw Failure(makeError(ErrorKind::Timeout, "Rank ", rank_, " successfully reached monitoredBarrier, but received ",
                          "errors while waiting for send/recv from rank 0: it ",
                          isAnswered ? "waited for others in vain, and its own output names them"
                                     : concat("did not answer within ", limit.whole.count(), " ms: Timed out")));
}

void FairringBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool waitAllRanks) {
  const GilReleased withoutLock;
  refuseUnlessUsable();
  countCall();
  RECORD_FUNCTION(operation::kMonitoredBarrier.title, c10::ArrayRef<const c10::IValue>());
  const std::uint32_t number = monitoredBarriers_++;
  const std::shared_ptr<Membership> membership = this->membership();
  if (!membership) return;
  // Rank 0 names the missing ranks: the others wait for as long as the group allows.
  const std::chrono::milliseconds own = limitOf(options.timeout);
  const std::chrono::milliseconds whole = getRank() == 0 ? own : std::max(own, timeout());
  const MonitoredBarrier::Limit limit{whole, MonitoredBarrier::Clock::now() + whole};
  withTorchsErrors([&] {
    Group& group = membership->group(whole);
    const std::uint64_t call = group.enter(signatureOf(operation::kMonitoredBarrier, {}));
    try {
      MonitoredBarrier barrier(group, getRank(), getSize(), number);
      getRank() == 0 ? barrier.admit(limit, waitAllRanks) : barrier.pass(limit);
    } catch (...) {
      group.ended(call, group.error());  // without one it is over, and other calls go on
      throw;
    }
    group.ended(call, {});
  });
}

}  // namespace fairring
