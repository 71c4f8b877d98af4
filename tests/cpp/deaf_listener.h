// A listener of this machine that answers nobody: its backlog is full, so the kernel drops what comes, as a network
// that is cut does.
#pragma once

#include <sys/socket.h>

#include <array>

#include "base/descriptor.h"
#include "transport/socket.h"

namespace fairring::testing {

class DeafListener {
 public:
  DeafListener() {
    const SocketAddress any = tcpAddress("127.0.0.1", 0);
    if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any.storage), any.length) != 0 ||
        ::listen(listener_.get(), 0) != 0)
      throw Failure(systemError("listen"));
    for (Descriptor& one : waiting_) one = startConnect(address());
  }

  int port() const { return portOf(listener_); }
  SocketAddress address() const { return tcpAddress("127.0.0.1", port()); }

 private:
  Descriptor listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::array<Descriptor, 3> waiting_;
};

}  // namespace fairring::testing
