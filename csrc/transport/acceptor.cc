#include "transport/acceptor.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

namespace fairring {

void GroupEndpoint::open(std::function<void(AuthenticatedConnection)> taker) {
  taker_ = std::move(taker);
  for (AuthenticatedConnection& connection : std::exchange(waiting_, {})) taker_(std::move(connection));
}

void GroupEndpoint::close() {
  closed_ = true;
  taker_ = nullptr;
  waiting_.clear();
}

void GroupEndpoint::put(AuthenticatedConnection connection) {
  if (closed_) return;
  if (taker_) return taker_(std::move(connection));
  waiting_.push_back(std::move(connection));
}

bool GroupEndpoint::hasRefused(int peer) const {
  return std::ranges::any_of(waiting_, [peer](const AuthenticatedConnection& one) {
    return one.peer == peer && static_cast<bool>(one.error);
  });
}

Acceptor::Acceptor(LoopThread& loop, std::vector<std::string> addresses, ListenPorts ports, Report report,
                   std::chrono::milliseconds early)
    : loop_(loop), addresses_(std::move(addresses)), earlyFor_(early), report_(std::move(report)) {
  listenWithin(ports);
  loop_.runAndWait([this] { watchListeners(); });
}

Acceptor::~Acceptor() {
  loop_.runAndWait([this] {
    if (paused_) loop_.loop().cancel(*paused_);
    for (const auto& [seat, timer] : early_) loop_.loop().cancel(timer);
    for (const Descriptor& listener : listeners_) loop_.loop().unwatch(listener.get());
    halfOpen_.clear();
    if (!reported_) return;
    report_(concat("in all ", strangers_, " connections to ", addresses_[0], " port ", port_,
                   " said nothing or did not pass the challenge"));
  });
}

void Acceptor::watchListeners() {
  for (const Descriptor& listener : listeners_) {
    loop_.loop().watch(listener.get(), EPOLLIN, [this, &listener](std::uint32_t) { acceptAll(listener); });
  }
}

void Acceptor::listenWithin(ListenPorts ports) {
  constexpr int kTriesOfAnyPort = 16;
  const bool any = ports.low == 0;
  const int tries = any ? kTriesOfAnyPort : ports.high - ports.low + 1;
  for (int i = 0; i < tries; ++i) {
    if (tryListen(any ? 0 : ports.low + i)) return;
  }
  throw Failure(makeError(ErrorKind::Configuration, "no free port to listen on at ", addresses_[0], " (",
                          any ? std::string("any port") : concat("FAIRRING_PORTS=", ports.low, "-", ports.high),
                          "): give FAIRRING_PORTS a range with one port per process of this machine"));
}

// The port that the first address gets must be free at the others too.
bool Acceptor::tryListen(int port) {
  listeners_.clear();
  for (const std::string& address : addresses_) {
    Descriptor listener = listenAt(address, listeners_.empty() ? port : port_);
    if (!listener) return false;
    if (listeners_.empty()) port_ = portOf(listener);
    listeners_.push_back(std::move(listener));
  }
  listeners_.push_back(listenOn(localAddressOf(addresses_[0], port_)));
  return static_cast<bool>(listeners_.back());
}

Descriptor Acceptor::listenAt(const std::string& address, int port) const {
  try {
    return listenOn(tcpAddress(address, port));
  } catch (const Failure& failure) {
    throw Failure(makeError(ErrorKind::Configuration, "cannot listen on ", address, " port ", port, ": ",
                            failure.what(), "; set TP_SOCKET_IFNAME to the interface of the job's network"));
  }
}

void Acceptor::acceptAll(const Descriptor& listener) {
  assert(loop_.loop().isCurrent());
  while (!paused_ && halfOpen_.size() < kHalfOpen) {
    Descriptor socket = acceptFrom(listener);
    if (!socket) {
      // Out of descriptors: this event would come again and again.
      if (errno == EMFILE || errno == ENFILE) pause(kPatience / 10);
      return;
    }
    greet(std::move(socket));
  }
  if (!paused_) pause(kPatience / 10);
}

void Acceptor::pause(std::chrono::milliseconds time) {
  for (const Descriptor& listener : listeners_) loop_.loop().unwatch(listener.get());
  paused_ = loop_.loop().at(loop_.loop().now() + time, [this] { resume(); });
}

void Acceptor::resume() {
  if (!paused_) return;
  loop_.loop().cancel(*paused_);
  paused_.reset();
  dropSilentHalfOpen();
  watchListeners();
}

void Acceptor::dropSilentHalfOpen() {
  if (halfOpen_.size() < kHalfOpen) return;
  strangers_ += std::erase_if(
      halfOpen_, [now = loop_.loop().now()](const auto& halfOpen) { return now - halfOpen.second.since > kPatience; });
}

void Acceptor::greet(Descriptor socket) {
  const std::uint64_t id = nextHalfOpen_++;
  Handshake::Terms terms{TlsStream::Side::Acceptor, Challenge([this](const Greeting& from) { return secretOf(from); }),
                         [this](const Greeting& from) { return tlsOf(from); }, kChallengeTimeout};
  try {
    halfOpen_[id] = {loop_.loop().now(),
                     std::make_unique<Handshake>(loop_.loop(), std::move(socket), std::move(terms),
                                                 [this, id](const Error& error) { finish(id, error); })};
  } catch (const Failure&) {  // no memory to watch it: same as refused
    halfOpen_.erase(id);
    ++strangers_;
  }
}

void Acceptor::finish(std::uint64_t halfOpen, const Error& error) {
  const auto node = halfOpen_.extract(halfOpen);
  resume();
  Handshake& handshake = *node.mapped().handshake;
  if (error && !handshake.hasProven()) return refuse(handshake, error);
  if (error && error.kind() != ErrorKind::Configuration) return;  // a rank whose connection broke: it tries again
  const Greeting greeting = handshake.greeting();
  const std::shared_ptr<GroupEndpoint> endpoint = endpointFor(greeting);
  if (!endpoint) return;  // the group left in the meantime
  endpoint->put({static_cast<int>(greeting.from), greeting.purpose, greeting.lane,
                 error ? Stream() : handshake.takeStream(), error});
}

void Acceptor::refuse(const Handshake& handshake, const Error& error) {
  const Greeting& greeting = handshake.greeting();
  const std::string from = peerOf(handshake.socket());
  if (greeting.group != GroupId{} && !endpointFor(greeting)) return awaitGroup(greeting, from);
  count(handshake.spoke(), concat("a connection from ", from, " to ", addresses_[0], " port ", port_, " was refused: ",
                                  error.text(), ". It was no rank of a group that is here, and changes nothing"));
}

void Acceptor::awaitGroup(const Greeting& greeting, std::string from) {
  const Seat seat(greeting.group, static_cast<int>(greeting.to));
  if (early_.contains(seat) || early_.size() == kHalfOpen) return;
  early_[seat] = loop_.loop().at(loop_.loop().now() + earlyFor_, [this, seat, greeting, from = std::move(from)] {
    early_.erase(seat);
    count(true, concat("rank ", greeting.from, " of a group came from ", from, " to ", addresses_[0], " port ", port_,
                       " for its rank ", greeting.to, ", but for ", static_cast<double>(earlyFor_.count()) / 1000,
                       " s that group has not been here. It is turned away, and changes nothing"));
  });
}

// Once: a port scan must not fill the log. A silent connection may be a rank that probes whether this process lives.
void Acceptor::count(bool spoke, const std::string& text) {
  ++strangers_;
  if (!report_ || !spoke || std::exchange(reported_, true)) return;
  report_(concat(text, ". Further ones are not reported"));
}

std::shared_ptr<GroupEndpoint> Acceptor::endpointFor(const Greeting& greeting) const {
  const auto found = endpoints_.find({greeting.group, static_cast<int>(greeting.to)});
  return found == endpoints_.end() ? nullptr : found->second;
}

std::shared_ptr<const Tls> Acceptor::tlsOf(const Greeting& greeting) const {
  const std::shared_ptr<GroupEndpoint> endpoint = endpointFor(greeting);
  return endpoint ? endpoint->tls : nullptr;
}

std::optional<Secret> Acceptor::secretOf(const Greeting& greeting) const {
  const std::shared_ptr<GroupEndpoint> endpoint = endpointFor(greeting);
  if (!endpoint || greeting.from == greeting.to) return std::nullopt;
  return endpoint->secret;
}

void Acceptor::add(const std::shared_ptr<GroupEndpoint>& endpoint) {
  loop_.runAndWait([&] {
    const Seat seat(endpoint->id, endpoint->rank);
    endpoints_[seat] = endpoint;
    const auto early = early_.find(seat);
    if (early == early_.end()) return;
    loop_.loop().cancel(early->second);
    early_.erase(early);
  });
}

void Acceptor::remove(const std::shared_ptr<GroupEndpoint>& endpoint) {
  loop_.runAndWait([&] {
    endpoint->close();
    endpoints_.erase({endpoint->id, endpoint->rank});
  });
}

}  // namespace fairring
