#include "exchange/tensorpipe_transport.h"

#include <linux/capability.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <tensorpipe/tensorpipe.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>

#include "base/error.h"

namespace fairring {

namespace {

constexpr rlim_t kLockableBytes = 64 << 20;  // with 20 MiB TensorPipe's ibv ends the process, with 64 MiB it works

// While it lives, threads start with all signals blocked. uv's would otherwise end the process by SIGPIPE when it
// writes to a peer that has gone, and none of TensorPipe's should run the program's handlers.
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

bool mayLockMemory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur >= kLockableBytes) return true;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> capabilities{};
  return ::syscall(SYS_capget, &header, capabilities.data()) == 0 &&
         (capabilities[0].effective & (1U << CAP_IPC_LOCK)) != 0;
}

}  // namespace

std::string tensorPipeObstacle(const std::string& transport) try {
  if (transport == "ibv") {
    std::error_code ignored;
    if (std::filesystem::directory_iterator("/sys/class/infiniband", ignored) ==
        std::filesystem::directory_iterator()) {
      return "TensorPipe's ibv needs an InfiniBand or RoCE device, and this machine has none; choose uv";
    }
    if (!mayLockMemory()) {
      return "TensorPipe's ibv needs to lock 64 MiB of memory, more than this process may; set ulimit -l unlimited";
    }
  }
  const auto context = create(transport);
  if (!context) return concat("TensorPipe has no transport \"", transport, "\"; choose uv, shm or ibv");
  const bool viable = context->isViable();
  context->join();
  if (viable) return {};
  if (transport == "ibv") return "TensorPipe's ibv can't use libibverbs.so.1 or finds no device; install rdma-core";
  return concat("TensorPipe's ", transport, " does not work on this machine; choose uv");
} catch (const std::exception& refusal) {
  return concat("TensorPipe's ", transport, " does not work here: ", refusal.what());
}

std::shared_ptr<tensorpipe::transport::Context> makeTensorPipeTransport(const std::string& transport) {
  const std::string obstacle = tensorPipeObstacle(transport);
  check(obstacle.empty(), ErrorKind::Configuration, obstacle);
  return create(transport);
}

}  // namespace fairring
