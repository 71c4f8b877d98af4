#include "backend/stock_backends.h"

#include <c10/util/Exception.h>

#include <system_error>
#include <thread>

#include "backend/device_sockets.h"

namespace fairring {
namespace {

constexpr std::chrono::milliseconds kRound{50};  // between two times that connections are shut

void shutAll(const std::vector<int>& epolls) {
  for (const int epoll : epolls) shutConnections(epoll);
}

}  // namespace

StockBackends::StockBackends(StorePtr store, Make make)
    : make_(std::make_shared<const Make>(std::move(make))), store_(std::move(store)) {}

StockBackends::BackendPtr StockBackends::get(c10::DeviceType device, const std::function<std::int64_t()>& meet,
                                             const std::function<void(c10d::Backend&)>& prepare) {
  const std::lock_guard making(making_);
  std::shared_ptr<const Make> make;
  StorePtr shared;
  {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(device);
    if (found != made_.end()) return found->second.backend;
    make = make_;
    shared = store_;
  }
  TORCH_CHECK_WITH(DistBackendError, make, "this process group has ended");
  const std::int64_t generation = meet();
  const auto store = c10::make_intrusive<AbortableStore>(shared->clone(), broken_);
  auto [backend, epolls] = (*make)(c10::DeviceTypeName(device, /*lower_case=*/true), generation, store);
  prepare(*backend);
  const auto devices = device == c10::DeviceType::CPU ? backend->getBackendOptions() : nullptr;
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, make_ && !broken_->rings(), "the group ended while its stock backend was made");
  made_[device] = {backend, devices, std::move(epolls)};
  return backend;
}

std::vector<StockBackends::BackendPtr> StockBackends::made() const {
  const std::lock_guard lock(mutex_);
  std::vector<BackendPtr> all;
  all.reserve(made_.size());
  for (const auto& [device, made] : made_) all.push_back(made.backend);
  return all;
}

bool StockBackends::hasEnded() const {
  const std::lock_guard lock(mutex_);
  return !make_;
}

void StockBackends::breakOff() {
  std::vector<BackendPtr> others;
  {
    const std::lock_guard lock(mutex_);
    broken_->ring();
    for (const auto& [device, made] : made_) {
      if (device == c10::DeviceType::CPU) {
        shutAll(made.epolls);  // here, for a reference kept beyond the lock could be the last, and waits to be dropped
      } else {
        others.push_back(made.backend);
      }
    }
    changed_.notify_all();
  }
  for (const BackendPtr& backend : others) backend->abort();
}

void StockBackends::end() {
  std::map<c10::DeviceType, Made> ending;
  std::shared_ptr<const Make> make;
  StorePtr store;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(made_);
    make.swap(make_);
    store.swap(store_);
  }
  for (auto& [device, made] : ending) {
    made.backend->shutdown();
    if (device == c10::DeviceType::CPU) endGloo(std::move(made));
  }
}

void StockBackends::endGloo(Made made) {
  const auto ended = std::make_shared<bool>(false);
  try {
    std::thread([self = shared_from_this(), ended, backend = std::move(made.backend)]() mutable {
      backend.reset();
      const std::lock_guard lock(self->mutex_);
      *ended = true;
      self->changed_.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // no threads left: then it is waited for here
    made.backend.reset();
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return *ended || broken_->rings(); });
  for (auto waited = kRound; !*ended && waited <= kPatience; waited += kRound) {
    lock.unlock();
    shutAll(made.epolls);
    lock.lock();
    changed_.wait_for(lock, kRound, [&] { return *ended; });
  }
}

}  // namespace fairring
