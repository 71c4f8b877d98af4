#include "backend/runtime.h"

#include "base/error.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
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

// How many whole cores' time this container may take, at least one; 0: there is no limit.
std::size_t coresOfContainer() {
  double quota = 0;
  double period = 0;
  if (!(std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period)) {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? static_cast<std::size_t>(std::max(1.0, quota / period)) : 0;
}

// Of those that this process may run on. If each rank of the machine has cores of its own, these are too few; then
// FAIRRING_HELPERS can say so.
std::size_t coresOfRank(std::size_t ranks) {
  cpu_set_t allowed;
  const bool isKnown = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const auto cores = isKnown ? static_cast<std::size_t>(CPU_COUNT(&allowed)) : std::thread::hardware_concurrency();
  const std::size_t most = coresOfContainer();
  return (most > 0 ? std::min(cores, most) : cores) / ranks;
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
  loop_.loop().post([this, helpers, ranks] {
    mostRanks_ = std::max(mostRanks_, ranks);
    loop_.loop().setHelpers(helpers ? *helpers : helpersFor(coresOfRank(mostRanks_)));
  });
}

}  // namespace fairring
