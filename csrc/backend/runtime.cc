#include "backend/runtime.h"

#include <mutex>

namespace fairring {

std::shared_ptr<Runtime> Runtime::acquire(const std::string& address, ListenPorts ports) {
  // Guards `current`; apart from the loop's mutex because it is held while threads are started.
  static std::mutex mutex;
  static std::weak_ptr<Runtime> current;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Runtime> runtime = current.lock();
  if (!runtime) {
    runtime = std::make_shared<Runtime>(address, ports);
    current = runtime;
  }
  return runtime;
}

Runtime::Runtime(const std::string& address, ListenPorts ports) : address_(address), acceptor_(loop_, address, ports) {}

}  // namespace fairring
