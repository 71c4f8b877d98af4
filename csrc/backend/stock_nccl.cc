#include "backend/stock_nccl.h"

#include <c10/util/Exception.h>

#include <utility>

namespace fairring {

StockNccl::StockNccl(Make make) : make_(make ? std::make_shared<const Make>(std::move(make)) : nullptr) {}

StockNccl::BackendPtr StockNccl::get(const Meet& meet, const std::function<void(c10d::Backend&)>& prepare) {
  const std::lock_guard making(making_);
  std::shared_ptr<const Make> make;
  {
    const std::lock_guard lock(mutex_);
    if (made_) return made_;
    make = make_;
  }
  TORCH_CHECK_WITH(DistBackendError, make, "this process group has ended");
  const Met met = meet();
  BackendPtr backend = (*make)(met.generation, c10::make_intrusive<AbortableStore>(met.store->clone(), broken_));
  prepare(*backend);
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, make_ && !broken_->rings(), "the group ended while its NCCL was made");
  made_ = backend;
  return backend;
}

StockNccl::BackendPtr StockNccl::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

void StockNccl::breakOff() {
  broken_->ring();
  if (const BackendPtr backend = made()) backend->abort();
}

void StockNccl::end() {
  BackendPtr ending;
  std::shared_ptr<const Make> make;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(made_);
    make.swap(make_);
  }
  if (ending) ending->shutdown();
}

}  // namespace fairring
