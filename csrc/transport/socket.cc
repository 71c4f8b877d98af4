#include "transport/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace fairring {

namespace {

constexpr int kBacklog = 1024;
constexpr int kUnsentBytes = 256 << 10;
constexpr int kKeepAliveSeconds = 1;
constexpr std::uint32_t kNearMicroseconds = 2000;  // round trip: a longer one is not within one building
constexpr int kTcpRtoMinUs = 45;                   // TCP_RTO_MIN_US of linux/tcp.h, from Linux 6.15 on
// As long as Linux' shortest delay of acknowledgements, which are never delayed for longer at a peer that has set this
// too. 5 ms cost eight machines with queues of 20 ms a tenth.
constexpr int kNearRetransmissionMicroseconds = 40'000;

Descriptor newSocket(int family) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw Failure(systemError("socket"));
  return socket;
}

void withoutDelay(const Descriptor& socket, int family) {
  const int on = 1;
  if (family != AF_UNIX) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Descriptor listenOn(const SocketAddress& address) {
  Descriptor socket = newSocket(address.storage.ss_family);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    if (errno == EADDRINUSE) return {};
    throw Failure(systemError("bind"));
  }
  if (::listen(socket.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) return {};
    throw Failure(systemError("listen"));
  }
  return socket;
}

bool isLocal(const Descriptor& socket) {
  sockaddr_storage self{};
  socklen_t size = sizeof self;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&self), &size) != 0 || self.ss_family == AF_UNIX;
}

std::string peerOf(const Descriptor& socket) {
  SocketAddress peer;
  peer.length = sizeof peer.storage;
  auto* address = reinterpret_cast<sockaddr*>(&peer.storage);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getpeername(socket.get(), address, &peer.length) != 0) return "a socket that is gone";
  if (address->sa_family == AF_UNIX) return "this machine";
  const int failed = ::getnameinfo(address, peer.length, host.data(), host.size(), port.data(), port.size(),
                                   NI_NUMERICHOST | NI_NUMERICSERV);
  return failed != 0 ? "somewhere" : concat(host.data(), " port ", port.data());
}

int portOf(const Descriptor& listener) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throw Failure(systemError("getsockname"));
  }
  if (address.storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

Descriptor startConnect(const SocketAddress& address, const std::optional<SocketAddress>& source) {
  Descriptor socket = newSocket(address.storage.ss_family);
  withoutDelay(socket, address.storage.ss_family);
  if (source && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&source->storage), source->length) != 0) {
    throw Failure(systemError("bind"));
  }
  const int status = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length);
  if (status != 0 && errno == ECONNREFUSED)
    throw Failure(makeError(ErrorKind::PeerDied, systemError("connect").text()));
  if (status != 0 && meansUnreachable(errno)) throw Unreachable(systemError("connect"));
  if (status != 0 && errno == EAGAIN) throw Failure(makeError(ErrorKind::Connection, systemError("connect").text()));
  if (status != 0 && errno != EINPROGRESS) throw Failure(systemError("connect"));
  return socket;
}

int finishConnect(const Descriptor& socket) {
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) return errno;
  return code;
}

void prepareForPayload(const Descriptor& socket, std::chrono::milliseconds patience) {
  if (isLocal(socket)) return;
  const auto set = [&](int level, int name, int value) {
    if (::setsockopt(socket.get(), level, name, &value, sizeof value) != 0) throw Failure(systemError("setsockopt"));
  };
  set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(patience.count()));
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveSeconds);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

namespace {

bool isNear(const Descriptor& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_rtt <= kNearMicroseconds;
}

}  // namespace

void shareEvenly(const Descriptor& socket) {
  constexpr std::string_view kUneven = "bbr";
  constexpr std::string_view kEven = "cubic";
  std::array<char, 16> name{};  // the kernel's TCP_CA_NAME_MAX
  socklen_t nameSize = name.size();
  if (!isNear(socket)) return;  // or not TCP
  // Older kernels refuse this: then the system's 200 ms stay.
  ::setsockopt(socket.get(), IPPROTO_TCP, kTcpRtoMinUs, &kNearRetransmissionMicroseconds,
               sizeof kNearRetransmissionMicroseconds);
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &nameSize) != 0) return;
  if (!std::string_view(name.data(), nameSize).starts_with(kUneven)) return;
  // Refused if the system does not have it or does not allow it: then the system's own stays.
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kEven.data(), kEven.size());
}

Descriptor acceptFrom(const Descriptor& listener) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  Descriptor socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) withoutDelay(socket, peer.ss_family);
  return socket;
}

}  // namespace fairring
