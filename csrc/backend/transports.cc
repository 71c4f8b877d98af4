#include "backend/transports.h"

#include "transport/tcp_channel.h"
#include "transport/tensorpipe_channel.h"
#include "transport/verbs_channel.h"

namespace fairring {

// verbs come after TensorPipe's ibv, so "auto" leaves them alone: no real card has run them.
const std::vector<Transport>& transports() {
  static const std::vector<Transport> all{tcpTransport(), tensorPipeTransport("uv"), tensorPipeTransport("shm"),
                                          tensorPipeTransport("ibv"), verbsTransport()};
  return all;
}

}  // namespace fairring
