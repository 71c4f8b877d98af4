#include "sockets.h"

#include <netinet/in.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace fairring {

namespace testing {

namespace {

Sockets* current = nullptr;

constexpr std::uint64_t kHandshakeBytes = 64;

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
    if (wire->isOf(rank)) wire->serve(rank);
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
    if (wire->isOf(rank) && wire->isLane && !wire->isLocal()) wire->cut();
  }
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
  const auto code = std::make_shared<int>(0);
  Descriptor socket = known(wire->open(0, !isLocal), {wire, code});
  if (isLocal) {
    arrive(*found->second, wire);
    return socket;
  }
  wire->cross(0, kHandshakeBytes, [this, wire, code, at = key(address)] {
    const auto listener = listeners_.find(at);
    *code = listener == listeners_.end() ? ECONNREFUSED : 0;
    if (*code == 0) arrive(*listener->second, wire);
    wire->cross(1, kHandshakeBytes, [wire] { wire->connected(0); });
  });
  return socket;
}

int Sockets::finishConnect(const Descriptor& socket) const {
  const auto& code = sockets_.at(socket.get()).code;
  return code ? *code : 0;
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

Descriptor listenOn(const SocketAddress& address) { return testing::Sockets::current().listen(address); }
int portOf(const Descriptor& listener) { return testing::Sockets::current().portOf(listener); }
bool isLocal(const Descriptor& socket) { return testing::Sockets::current().isLocal(socket); }
std::string peerOf(const Descriptor& socket) { return concat(isLocal(socket) ? "this" : "another", " machine"); }
Descriptor startConnect(const SocketAddress& address, const std::optional<SocketAddress>&) {
  return testing::Sockets::current().connect(address);
}
int finishConnect(const Descriptor& socket) { return testing::Sockets::current().finishConnect(socket); }
void prepareForPayload(const Descriptor& socket, std::chrono::milliseconds) {
  testing::Sockets::current().prepareForPayload(socket);
}
void shareEvenly(const Descriptor&) {}
Descriptor acceptFrom(const Descriptor& listener) { return testing::Sockets::current().accept(listener); }

}  // namespace fairring
