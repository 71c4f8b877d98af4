#include "backend/runtime.h"

#include "base/error.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

namespace fairring {
namespace {

// Guards `current`; separate from the loop's mutex because it is held while threads are started.
std::mutex mutex;
std::weak_ptr<Runtime> current;

// A forked child that makes groups of its own needs threads of its own. Registered when the first runtime is made, so
// after the descriptors' table: fork() takes the mutexes in the opposite order, which is that of acquire().
void prepareForForks() {
  static const int done = ::pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                                           [] {
                                             current.reset();
                                             mutex.unlock();
                                           });
  check(done == 0, ErrorKind::System, "pthread_atfork: no memory");
}

std::vector<std::string> all(const Interfaces& interfaces) {
  std::vector<std::string> addresses = interfaces.rail;
  for (const std::string& address : interfaces.site) {
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

// Of those that this process may run on, its share beside the other ranks of the machine.
std::size_t coresOfRank(std::size_t ranks) {
  cpu_set_t allowed;
  const std::size_t online = std::thread::hardware_concurrency();
  const std::size_t here =
      ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? static_cast<std::size_t>(CPU_COUNT(&allowed)) : online;
  return std::min(here, online / ranks);
}

// The loop and the program need cores, too.
std::size_t helpersFor(std::size_t cores) { return cores < 4 ? 0 : cores < 8 ? 1 : 2; }

}  // namespace

std::shared_ptr<Runtime> Runtime::acquire(const Interfaces& interfaces, ListenPorts ports) {
  prepareForForks();
  const std::lock_guard lock(mutex);
  std::shared_ptr<Runtime> runtime = current.lock();
  if (!runtime) {
    runtime = std::make_shared<Runtime>(interfaces, ports);
    current = runtime;
  }
  return runtime;
}

Runtime::Runtime(Interfaces interfaces, ListenPorts ports)
    : interfaces_(std::move(interfaces)), acceptor_(loop_, all(interfaces_), ports, [this](const std::string& text) {
        completion_.post([text] { TORCH_WARN("fairring: ", text); });  // writing may block
      }) {}

void Runtime::help(std::optional<std::size_t> helpers, std::size_t ranks) {
  loop_.loop().post([this, count = helpers.value_or(helpersFor(coresOfRank(ranks)))] { loop_.loop().setHelpers(count); });
}

}  // namespace fairring
