// TensorPipe's transports: "uv" (TCP), "shm" (shared memory of one machine), "ibv" (InfiniBand, RoCE).
#pragma once

#include <memory>
#include <string>

namespace tensorpipe::transport {
class Context;
}

namespace fairring {

// The reason why this process can't use the transport with that many peers, and the remedy; empty if it can.
std::string tensorPipeObstacle(const std::string& transport, int peers = 1);

// Throws Failure(Configuration) if there is an obstacle.
std::shared_ptr<tensorpipe::transport::Context> makeTensorPipeTransport(const std::string& transport, int peers);

}  // namespace fairring
