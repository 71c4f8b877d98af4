// TensorPipe's transports: "uv" (TCP), "shm" (shared memory of one machine), "ibv" (InfiniBand, RoCE).
#pragma once

#include <memory>
#include <string>

namespace tensorpipe::transport {
class Context;
}

namespace fairring {

// The reason why this process can't use the transport, and the remedy; empty if it can. How much memory ibv may lock is
// asked before (rdma_offer.h).
std::string tensorPipeObstacle(const std::string& transport);

// Throws Failure(Configuration) if there is an obstacle.
std::shared_ptr<tensorpipe::transport::Context> makeTensorPipeTransport(const std::string& transport);

}  // namespace fairring
