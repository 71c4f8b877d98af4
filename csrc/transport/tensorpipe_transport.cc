#include "transport/tensorpipe_transport.h"

#include <pthread.h>
#include <tensorpipe/tensorpipe.h>

#include <csignal>

#include "base/error.h"
#include "transport/rdma_offer.h"

namespace fairring {

namespace {

// While it lives, threads start with all signals blocked. Otherwise uv's threads would end the process by SIGPIPE when
// they write to a peer that has gone, and none of TensorPipe's threads should run the program's handlers.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

std::shared_ptr<tensorpipe::transport::Context> create(const std::string& name) {
  const SignalsBlocked inNewThreads;
  if (name == "uv") return tensorpipe::transport::uv::create();
  if (name == "shm") return tensorpipe::transport::shm::create();
  if (name == "ibv") return tensorpipe::transport::ibv::create();
  return nullptr;
}

}  // namespace

std::string tensorPipeObstacle(const std::string& transport) try {
  if (transport == "ibv") {
    if (std::string why = rdmaDeviceObstacle(); !why.empty()) return why;
  }
  const auto context = create(transport);
  if (!context) return concat("TensorPipe has no transport \"", transport, "\"; choose uv, shm or ibv");
  const bool viable = context->isViable();
  context->join();
  if (viable) return {};
  return concat("TensorPipe's ", transport, " does not work on this machine; choose another");
} catch (const std::exception& refusal) {
  return concat("TensorPipe's ", transport, " does not work here: ", refusal.what());
}

std::shared_ptr<tensorpipe::transport::Context> makeTensorPipeTransport(const std::string& transport) {
  const std::string obstacle = tensorPipeObstacle(transport);
  check(obstacle.empty(), ErrorKind::Configuration, obstacle);
  return create(transport);
}

}  // namespace fairring
