#include "backend/transports.h"

#include "transport/tcp_channel.h"
#include "transport/tensorpipe_channel.h"
#include "transport/verbs_channel.h"

namespace fairring {

// verbs come before TensorPipe's ibv, which copies, takes the first device alone and keeps a core busy.
const std::vector<Transport>& transports() {
  static const std::vector<Transport> all{tcpTransport(), tensorPipeTransport("uv"), tensorPipeTransport("shm"),
                                          verbsTransport(), tensorPipeTransport("ibv")};
  return all;
}

}  // namespace fairring
