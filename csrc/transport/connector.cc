#include "transport/connector.h"

#include <algorithm>
#include <cassert>

namespace fairring {

namespace {

// Between attempts: short at first, as the other side may be about to make the group; then twice as long each time.
constexpr std::chrono::milliseconds kFirstRetry{2};
constexpr std::chrono::milliseconds kLongestRetry{100};
constexpr std::chrono::milliseconds kCrowded{3'000};
// The kernel gives up on a machine that has not answered for 3 s, though its link may have come back just then.
constexpr std::chrono::milliseconds kUnreachable{10'000};
// The time of an attempt to make a connection anew: the other machine's network may come back just after a packet was
// lost. A stopped process is waited for, because it would find all attempts at once when it continues.
constexpr std::chrono::milliseconds kLongestSilence{1'000};

}  // namespace

Connector::Connector(Loop& loop, std::shared_ptr<GroupEndpoint> endpoint, Events events)
    : loop_(loop), endpoint_(std::move(endpoint)), events_(std::move(events)) {}

Connector::~Connector() {
  endpoint_->close();
  for (const auto& [key, attempt] : attempts_) loop_.cancel(attempt.retry);
}

void Connector::open() {
  assert(loop_.isCurrent());
  endpoint_->open([this](AuthenticatedConnection connection) { take(std::move(connection)); });
}

void Connector::want(const std::vector<ConnectionSpec>& wanted, std::chrono::milliseconds timeout) {
  for (const ConnectionSpec& one : wanted) {
    const Key key{one.peer, one.purpose, one.lane};
    wanted_[key] = one;
    if (!linked_.contains(key)) missing_.insert(key);
  }
  open();
  hasWanted_ = true;
  const auto deadline = loop_.now() + timeout;
  for (const ConnectionSpec& one : wanted)
    beginIfMissing(one, {.again = false, .deadline = deadline, .crowdedUntil = deadline});
  for (auto& [key, connection] : std::exchange(early_, {})) take(std::move(connection));
}

void Connector::connect(const ConnectionSpec& one, std::chrono::milliseconds timeout) {
  const auto now = loop_.now();
  beginIfMissing(one, {.again = false, .deadline = now + timeout, .crowdedUntil = now + kCrowded});
}

void Connector::repeat(const ConnectionSpec& one, std::chrono::milliseconds timeout) {
  const Key key{one.peer, one.purpose, one.lane};
  assert(isMine(key) && wanted_.contains(key));
  linked_.erase(key);
  missing_.insert(key);
  connect(one, timeout);
}

void Connector::beginIfMissing(const ConnectionSpec& one, Attempt attempt) {
  assert(loop_.isCurrent());
  const Key key{one.peer, one.purpose, one.lane};
  wanted_[key] = one;
  if (linked_.contains(key) || !isMine(key)) return;
  const auto underWay = attempts_.find(key);
  if (underWay == attempts_.end()) return begin(key, std::move(attempt));
  underWay->second.crowdedUntil = std::max(underWay->second.crowdedUntil, attempt.crowdedUntil);
}

void Connector::restore(int peer, Purpose purpose, std::uint32_t lane, std::chrono::milliseconds timeout) {
  assert(loop_.isCurrent());
  const Key key{peer, purpose, lane};
  if (!isMine(key) || !wanted_.contains(key) || attempts_.contains(key)) return;
  const auto deadline = loop_.now() + timeout;
  begin(key, {.again = true, .deadline = deadline, .crowdedUntil = deadline});
}

bool Connector::isMine(const Key& key) const {
  const auto [peer, purpose, lane] = key;
  const bool isHigher = endpoint_->rank > peer;
  return purpose == Purpose::MessageLane ? isHigher == (lane == 0) : isHigher;
}

// Not from within: the caller that asked for the connection is still busy with it.
void Connector::begin(const Key& key, Attempt attempt) {
  attempt.unreachableUntil = loop_.now() + kUnreachable;
  attempt.retry = loop_.at(loop_.now(), [this, key] { tryConnecting(key); });
  attempts_[key] = std::move(attempt);
}

void Connector::tryConnecting(const Key& key) {
  Attempt& attempt = attempts_.at(key);
  attempt.handshake.reset();
  attempt.hadNoWay = false;
  const ConnectionSpec& wanted = wanted_.at(key);
  const Greeting greeting{.purpose = wanted.purpose,
                          .lane = wanted.lane,
                          .from = static_cast<std::uint32_t>(endpoint_->rank),
                          .to = static_cast<std::uint32_t>(wanted.peer),
                          .group = endpoint_->id};
  // A busy loop may come here after the deadline.
  const auto left = std::max(std::chrono::ceil<std::chrono::milliseconds>(attempt.deadline - loop_.now()),
                             std::chrono::milliseconds(1));
  try {
    Descriptor socket = startConnect(wanted.address, wanted.source);
    if (attempt.again) prepareForPayload(socket, kLongestSilence);
    Handshake::Terms terms{TlsStream::Side::Connector, Challenge(greeting, endpoint_->secret),
                           [this](const Greeting&) { return endpoint_->tls; }, left};
    attempt.handshake = std::make_unique<Handshake>(loop_, std::move(socket), std::move(terms),
                                                    [this, key](const Error& error) { onFinished(key, error); });
  } catch (const Unreachable& failure) {
    attempt.hadNoWay = true;
    onFinished(key, failure.error());
  } catch (const Failure& failure) {
    onFinished(key, failure.error());
  }
}

bool Connector::retry(const Attempt& attempt, const Error& error) const {
  const auto now = loop_.now();
  if (!error || now + kLongestRetry >= attempt.deadline) return false;
  const bool isClosed = error.kind() == ErrorKind::Connection && now < attempt.crowdedUntil;
  const bool wasUnreachable = attempt.hadNoWay || (attempt.handshake && attempt.handshake->isUnreachable());
  return isClosed || (wasUnreachable && now < attempt.unreachableUntil) ||
         (attempt.again && error.kind() != ErrorKind::Configuration);
}

void Connector::onFinished(const Key& key, const Error& error) {
  Attempt& attempt = attempts_.at(key);
  if (retry(attempt, error)) {
    attempt.pause = std::clamp(2 * attempt.pause, kFirstRetry, kLongestRetry);
    attempt.retry = loop_.at(loop_.now() + attempt.pause, [this, key] { tryConnecting(key); });
    return;
  }
  const auto node = attempts_.extract(key);  // kept alive until this is over, since its handshake is calling
  const auto [peer, purpose, lane] = key;
  if (!error) return take({peer, purpose, lane, node.mapped().handshake->takeStream(), {}});
  if (node.mapped().again && error.kind() != ErrorKind::Configuration) return;
  // A lane may go to another interface, which a firewall may block on its own.
  const bool isOther = error.kind() == ErrorKind::PeerDied && !goesToListener(key);
  events_.failed(peer, isOther ? makeError(ErrorKind::Connection, error.text()) : error);
}

// Whether it goes to the same address as the peer's control connection.
bool Connector::goesToListener(const Key& key) const {
  const auto [peer, purpose, lane] = key;
  const auto control = wanted_.find({peer, Purpose::Control, 0});
  return control == wanted_.end() || control->second.address == wanted_.at(key).address;
}

void Connector::take(AuthenticatedConnection connection) {
  const Key key{connection.peer, connection.purpose, connection.lane};
  const bool isExpected = wanted_.contains(key) || connection.purpose != Purpose::Lane;
  if (!isExpected) {  // an unexpected connection is closed by going out of scope
    if (!hasWanted_) early_.insert_or_assign(key, std::move(connection));
    return;
  }
  if (connection.error) return events_.failed(connection.peer, connection.error);
  const bool isLane = connection.purpose != Purpose::Control;
  // A lane may come again before this rank has seen it break. A second control connection is closed.
  const bool isNew = linked_.insert(key).second;
  missing_.erase(key);
  if (isNew || isLane) events_.linked(std::move(connection));
}

std::set<int> Connector::missing() const {
  std::set<int> peers;
  for (const auto& [peer, purpose, lane] : missing_) peers.insert(peer);
  return peers;
}

}  // namespace fairring
