#include "backend/refused_connection.h"

#include <poll.h>

#include <cerrno>

#include "base/descriptor.h"
#include "base/error.h"
#include "transport/socket.h"

namespace fairring {

bool refusesConnection(const std::string& address, int port) {
  constexpr int kProbeMs = 1'000;
  try {
    const Descriptor probe = startConnect(tcpAddress(address, port));
    pollfd ready{.fd = probe.get(), .events = POLLOUT, .revents = 0};
    return ::poll(&ready, 1, kProbeMs) > 0 && finishConnect(probe) == ECONNREFUSED;
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace fairring
