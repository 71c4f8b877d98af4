#include "backend/stock_nccl.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <utility>

#include "base/first_exception.h"

namespace fairring {
namespace {

// With threads that are in NCCL when it is to be aborted. One that waits there for its peers needs the abort.
constexpr std::chrono::seconds kPatience{5};

}  // namespace

StockNccl::StockNccl(Make make) : make_(make ? std::make_shared<const Make>(std::move(make)) : nullptr) {}

StockNccl::BackendPtr StockNccl::get(const Use& use, const Meet& meet, const Prepare& prepare) {
  TORCH_CHECK_WITH(DistBackendError, !broken_.stop_requested(), "this process group has failed, or was aborted");
  const std::lock_guard making(making_);
  if (hasOlder_ && (use.isMessage || isElsewhere(use))) {
    if (BackendPtr older = make(Part::Older, use.device, meet, prepare)) return older;
    hasOlder_ = false;
  }
  return make(Part::Nccl, use.device, meet, prepare);
}

// Whether the call is on another device than the group's NCCL.
bool StockNccl::isElsewhere(const Use& use) const {
  const std::lock_guard lock(mutex_);
  const Device bound = nccl_ ? nccl_->getBoundDeviceId() : std::nullopt;
  return use.isOnDevice && use.device && bound && *use.device != *bound;
}

StockNccl::BackendPtr StockNccl::make(Part part, const Device& device, const Meet& meet, const Prepare& prepare) {
  BackendPtr& made = part == Part::Nccl ? nccl_ : older_;
  std::shared_ptr<const Make> make;
  {
    const std::lock_guard lock(mutex_);
    if (made) return made;
    make = make_;
  }
  TORCH_CHECK_WITH(DistBackendError, make, "this process group has ended");
  const Met met = meet();
  BackendPtr backend = (*make)(
      met.generation, c10::make_intrusive<AbortableStore>(met.store->clone(), broken_.get_token()), part, device);
  if (!backend) return nullptr;
  prepare(*backend);
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, make_ && !broken_.stop_requested(), "the group ended while its NCCL was made");
  made = backend;
  return backend;
}

std::vector<StockNccl::BackendPtr> StockNccl::made() const {
  const std::lock_guard lock(mutex_);
  std::vector<BackendPtr> made;
  for (const BackendPtr& one : {nccl_, older_}) {
    if (one) made.push_back(one);
  }
  return made;
}

bool StockNccl::serves(const c10d::Backend& backend) const {
  if (broken_.stop_requested()) return false;
  const std::lock_guard lock(mutex_);
  return &backend == nccl_.get() || &backend == older_.get();
}

void StockNccl::breakOff() {
  broken_.request_stop();
  {
    const std::unique_lock untilBegun(beginning_, kPatience);
  }
  const std::lock_guard aborting(aborting_);
  FirstException thrown;
  for (const BackendPtr& one : made()) {
    thrown.of([&] { one->abort(); });
  }
  thrown.rethrow();
}

void StockNccl::end() {
  BackendPtr nccl;
  BackendPtr older;
  std::shared_ptr<const Make> make;
  {
    const std::lock_guard lock(mutex_);
    nccl.swap(nccl_);
    older.swap(older_);
    make.swap(make_);
  }
  if (!older && !nccl) return;
  {
    const std::unique_lock untilBegun(beginning_, kPatience);
  }
  {
    const std::lock_guard untilAborted(aborting_);
  }
  FirstException thrown;
  for (const BackendPtr& one : {older, nccl}) {
    if (one) thrown.of([&] { one->shutdown(); });
  }
  thrown.rethrow();
}

}  // namespace fairring
