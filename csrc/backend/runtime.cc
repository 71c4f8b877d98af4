#include "backend/runtime.h"

#include "base/error.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
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

}  // namespace fairring
