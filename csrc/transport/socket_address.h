// The address at which a socket listens, or to which it connects. Stateless; any thread.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <string>

namespace fairring {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  bool operator==(const SocketAddress& other) const {
    return length == other.length && std::memcmp(&storage, &other.storage, length) == 0;
  }
};

// "10.0.0.3", "fe80::1%eth0". Throws Failure(Configuration) if the text is no address.
SocketAddress tcpAddress(const std::string& ip, int port);
// An address in the abstract namespace: no file, seen by every process of the same network namespace.
SocketAddress localAddress(const std::string& name);
// Two processes of one network namespace never listen on the same address and port, so the name is unique there.
SocketAddress localAddressOf(const std::string& ip, int port);

}  // namespace fairring
