#include "sockets.h"

#include <netinet/in.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "memory.h"
#include "transport/acceptor.h"

namespace fairring {

namespace testing {

namespace {

Sockets* current = nullptr;

constexpr std::uint64_t kHandshakeBytes = 64;
constexpr std::uint64_t kAnswerBytes = 64;  // of transport/challenge.h
constexpr std::uint64_t kCrowd = Acceptor::kHalfOpen + 40;

}  // namespace

Sockets::Sockets(Surroundings& surroundings) : surroundings_(surroundings) { testing::current = this; }

Sockets::~Sockets() { testing::current = nullptr; }

Sockets& Sockets::current() { return *testing::current; }

std::string Sockets::key(const SocketAddress& address) {
  return {reinterpret_cast<const char*>(&address.storage), address.length};
}

void Sockets::serve(int rank) {
  std::size_t i = 0;
  while (i < wires_.size()) {  // more may come meanwhile
    const std::shared_ptr<Wire> wire = wires_[i++];
    if (!wire->isOf(rank)) continue;
    wire->serve(rank);
    isStrangerInside_ = isStrangerInside_ || (wire->isStrangers() && wire->writtenBy(1) > kAnswerBytes);
  }
  std::erase_if(wires_, [](const auto& wire) { return wire->isOver(); });
}

void Sockets::died(int rank) {
  stopListening(rank);
  for (const auto& wire : wires_) wire->died(rank);
}

void Sockets::stopListening(int rank) {
  std::erase_if(listeners_, [rank](const auto& entry) { return entry.second->rank == rank; });
}

void Sockets::breakLanes(int rank) {
  for (const auto& wire : wires_) {
    if (wire->isOf(rank) && (wire->isLane || wire->isBeingMade()) && !wire->isLocal()) wire->cut();
  }
}

void Sockets::refuse(int rank, simulation::Time until) { refusesUntil_[rank] = until; }

void Sockets::intrude(int rank, Intrusion how) {
  const auto listener = std::ranges::find_if(
      listeners_, [rank](const auto& entry) { return entry.second->rank == rank && entry.second->port != 0; });
  if (listener == listeners_.end()) return;
  const std::string& at = listener->first;
  // Its packets come the way of some rank's.
  const int from = std::next(ranks_.begin(), static_cast<std::ptrdiff_t>(surroundings_.number(ranks_.size())))->second;
  std::vector<std::byte> bytes = heardOn(rank);
  switch (how) {
    case Intrusion::Garbage: return intrude(at, from, randomBytes(300), surroundings_.number(2) == 0);
    case Intrusion::Replay:
      std::ranges::copy(randomBytes(300), std::back_inserter(bytes));
      return intrude(at, from, bytes, false);
    case Intrusion::Half: bytes.resize(surroundings_.number(bytes.size())); return intrude(at, from, bytes, false);
    case Intrusion::Crowd: break;
  }
  for (std::uint64_t i = 0; i < kCrowd; ++i) intrude(at, from, {}, false);
}

void Sockets::intrude(const std::string& address, int from, const std::vector<std::byte>& bytes, bool closes) {
  const auto wire = std::make_shared<Wire>(surroundings_, std::array{from, ranks_.at(address)}, Wire::Kind::Network);
  wires_.push_back(wire);
  wire->cross(0, kHandshakeBytes, [this, wire, address, bytes, closes] {
    const auto listener = listeners_.find(address);
    if (listener != listeners_.end()) arrive(*listener->second, wire);
    wire->speak(0, bytes, closes || listener == listeners_.end());
  });
}

std::vector<std::byte> Sockets::randomBytes(std::uint64_t most) {
  std::vector<std::byte> bytes(1 + surroundings_.number(most));
  std::ranges::generate(bytes, [this] { return static_cast<std::byte>(surroundings_.number(256)); });
  return bytes;
}

std::vector<std::byte> Sockets::heardOn(int rank) {
  const auto& greetings = greetings_[rank];
  std::vector<std::byte> heard;
  if (!greetings.empty()) heard = *greetings[surroundings_.number(greetings.size())];
  return heard.empty() ? randomBytes(300) : heard;
}

Descriptor Sockets::listen(SocketAddress address) {
  auto listener = std::make_shared<Listener>();
  listener->rank = acting_;
  if (address.storage.ss_family == AF_INET) {
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    if (in->sin_port == 0) in->sin_port = htons(static_cast<std::uint16_t>(nextPort_++));
    listener->port = ntohs(in->sin_port);
  }
  Descriptor bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE));
  listener->bell = Descriptor(::dup(bell.get()));
  if (!bell || !listener->bell) throw Failure(systemError("eventfd"));
  listeners_[key(address)] = listener;
  ranks_[key(address)] = acting_;
  listening_[bell.get()] = listener;
  return bell;
}

int Sockets::portOf(const Descriptor& listener) const {
  const auto found = listening_.at(listener.get()).lock();
  return found ? found->port : 0;
}

bool Sockets::isLocal(const Descriptor& socket) const { return sockets_.at(socket.get()).wire->isLocal(); }

Descriptor Sockets::known(Descriptor socket, Socket what) {
  sockets_[socket.get()] = std::move(what);
  return socket;
}

void Sockets::arrive(Listener& listener, const std::shared_ptr<Wire>& wire) {
  listener.waiting.emplace_back(wire->open(1), wire);
  ::eventfd_write(listener.bell.get(), 1);
  wire->serve(listener.rank);
  surroundings_.wake(listener.rank);
}

Descriptor Sockets::connect(const SocketAddress& address) {
  const bool isLocal = address.storage.ss_family == AF_UNIX;
  const auto found = listeners_.find(key(address));
  if (isLocal && found == listeners_.end())
    throw Failure(makeError(ErrorKind::PeerDied, "connect: nobody listens at this local socket"));
  const int there = ranks_.at(key(address));  // a listener may have gone: the way to its machine is the same
  const auto wire = std::make_shared<Wire>(surroundings_, std::array{acting_, there},
                                           isLocal ? Wire::Kind::Local : Wire::Kind::Network);
  wires_.push_back(wire);
  if (!isLocal) greetings_[there].push_back(wire->greeting);
  const auto code = std::make_shared<int>(0);
  Descriptor socket = known(wire->open(0, !isLocal), {wire, code});
  if (isLocal) {
    arrive(*found->second, wire);
    return socket;
  }
  wire->cross(0, kHandshakeBytes, [this, wire, code, at = key(address)] {
    const auto listener = listeners_.find(at);
    const bool isRefused = listener == listeners_.end() || surroundings_.now() < refusesUntil_[listener->second->rank];
    *code = isRefused ? ECONNREFUSED : 0;
    if (*code == 0) arrive(*listener->second, wire);
    wire->cross(1, kHandshakeBytes, [wire] { wire->connected(0); });
  });
  return socket;
}

int Sockets::finishConnect(const Descriptor& socket) const {
  const auto& code = sockets_.at(socket.get()).code;
  return code ? *code : 0;
}

void Sockets::prepareForPayload(const Descriptor& socket) {
  Wire& wire = *sockets_.at(socket.get()).wire;
  wire.isLane = true;
  isStrangerInside_ = isStrangerInside_ || wire.isStrangers();
}

Descriptor Sockets::accept(const Descriptor& listener) {
  const auto found = listening_.at(listener.get()).lock();
  if (!found || found->waiting.empty()) {
    errno = EAGAIN;
    return {};
  }
  std::uint64_t one = 0;
  ::eventfd_read(listener.get(), &one);
  auto [socket, wire] = std::move(found->waiting.front());
  found->waiting.pop_front();
  return known(std::move(socket), {std::move(wire), nullptr});
}

}  // namespace testing

// The network's own memory does not run out.
using testing::AmpleMemory;

Descriptor listenOn(const SocketAddress& address) {
  const AmpleMemory memory;
  return testing::Sockets::current().listen(address);
}
int portOf(const Descriptor& listener) {
  const AmpleMemory memory;
  return testing::Sockets::current().portOf(listener);
}
bool isLocal(const Descriptor& socket) {
  const AmpleMemory memory;
  return testing::Sockets::current().isLocal(socket);
}
std::string peerOf(const Descriptor& socket) { return concat(isLocal(socket) ? "this" : "another", " machine"); }
Descriptor startConnect(const SocketAddress& address, const std::optional<SocketAddress>&) {
  const AmpleMemory memory;
  return testing::Sockets::current().connect(address);
}
int finishConnect(const Descriptor& socket) {
  const AmpleMemory memory;
  return testing::Sockets::current().finishConnect(socket);
}
void prepareForPayload(const Descriptor& socket, std::chrono::milliseconds) {
  const AmpleMemory memory;
  testing::Sockets::current().prepareForPayload(socket);
}
void shareEvenly(const Descriptor&) {}
Descriptor acceptFrom(const Descriptor& listener) {
  const AmpleMemory memory;
  return testing::Sockets::current().accept(listener);
}

}  // namespace fairring
