#include "exchange/links.h"

#include <cassert>

namespace fairring {

namespace {

constexpr std::chrono::milliseconds kRetryAfter{100};

}  // namespace

Links::Links(Loop& loop, std::shared_ptr<Entrance> entrance, Events events)
    : loop_(loop), entrance_(std::move(entrance)), events_(std::move(events)) {}

Links::~Links() {
  entrance_->close();
  for (const auto& [key, attempt] : attempts_) loop_.cancel(attempt.retry);
}

void Links::want(const std::vector<Wanted>& wanted, std::chrono::milliseconds timeout) {
  assert(loop_.isCurrent());
  for (const Wanted& one : wanted) missing_.emplace(one.peer, one.purpose);
  entrance_->open([this](Arrival arrival) { take(std::move(arrival)); });
  for (const Wanted& one : wanted) {
    if (entrance_->rank < one.peer) continue;
    const Key key{one.peer, one.purpose};
    Attempt& attempt = attempts_[key];
    attempt = {.wanted = one, .deadline = Loop::Clock::now() + timeout, .handshake = nullptr, .retry = 0};
    // Not from within: who asked for the connections is still at it.
    attempt.retry = loop_.at(Loop::Clock::now(), [this, key] { connect(attempts_.at(key)); });
  }
}

void Links::connect(Attempt& attempt) {
  const Key key{attempt.wanted.peer, attempt.wanted.purpose};
  const Greeting greeting{.purpose = attempt.wanted.purpose,
                          .from = static_cast<std::uint32_t>(entrance_->rank),
                          .to = static_cast<std::uint32_t>(attempt.wanted.peer),
                          .group = entrance_->id};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(attempt.deadline - Loop::Clock::now());
  try {
    attempt.handshake =
        std::make_unique<Handshake>(loop_, startConnect(attempt.wanted.address), Hello(greeting, entrance_->secret),
                                    left, [this, key](const Error& error) { onFinished(key, error); });
  } catch (const Failure& failure) {
    onFinished(key, failure.error());
  }
}

void Links::onFinished(const Key& key, const Error& error) {
  Attempt& attempt = attempts_.at(key);
  const auto next = Loop::Clock::now() + kRetryAfter;
  if (error && error.kind() == ErrorKind::Connection && next < attempt.deadline) {
    attempt.retry = loop_.at(next, [this, key] { connect(attempts_.at(key)); });
    return;
  }
  const auto node = attempts_.extract(key);  // alive until this is over, for it is its handshake that calls
  if (error) return events_.failed(key.first, error);
  take({key.first, key.second, node.mapped().handshake->takeSocket()});
}

void Links::take(Arrival arrival) {
  // What nobody waits for (a second connection of the same peer and purpose) is closed by going out of scope.
  if (missing_.erase({arrival.peer, arrival.purpose}) > 0) events_.linked(std::move(arrival));
}

std::set<int> Links::missing() const {
  std::set<int> peers;
  for (const auto& [peer, purpose] : missing_) peers.insert(peer);
  return peers;
}

}  // namespace fairring
