#include "transport/socket_address.h"

#include <netdb.h>
#include <sys/un.h>

#include <cstddef>

#include "base/error.h"

namespace fairring {

SocketAddress tcpAddress(const std::string& ip, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(ip.c_str(), std::to_string(port).c_str(), &hints, &found);
  check(failed == 0, ErrorKind::Configuration, "'", ip, "' port ", port, " is no IP address: ", ::gai_strerror(failed));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

SocketAddress localAddress(const std::string& name) {
  SocketAddress address;
  auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
  check(name.size() + 1 < sizeof un->sun_path, ErrorKind::Configuration, "local socket name too long: ", name);
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

SocketAddress localAddressOf(const std::string& ip, int port) {
  return localAddress(concat("fairring/", ip, "/", port));
}

}  // namespace fairring
