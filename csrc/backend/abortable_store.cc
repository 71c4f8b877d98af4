#include "backend/abortable_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace fairring {
namespace {

constexpr std::chrono::milliseconds kFirstPause{1};  // between two polls of the store
constexpr std::chrono::milliseconds kLongestPause{64};

}  // namespace

void Alarm::ring() {
  std::vector<std::weak_ptr<Alarm>> others;
  {
    const std::lock_guard lock(mutex_);
    rings_ = true;
    rung_.notify_all();
    others.swap(others_);
  }
  for (const auto& other : others) {
    if (const auto there = other.lock()) there->ring();
  }
}

void Alarm::ringsToo(const std::shared_ptr<Alarm>& other) {
  {
    const std::lock_guard lock(mutex_);
    if (!rings_) {
      others_.emplace_back(other);
      return;
    }
  }
  other->ring();
}

bool Alarm::rings() const {
  const std::lock_guard lock(mutex_);
  return rings_;
}

bool Alarm::ringsWithin(std::chrono::milliseconds time) const {
  std::unique_lock lock(mutex_);
  return rung_.wait_for(lock, time, [this] { return rings_; });
}

AbortableStore::AbortableStore(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<Alarm> alarm)
    : Store(store->getTimeout()), store_(std::move(store)), alarm_(std::move(alarm)) {}

c10::intrusive_ptr<c10d::Store> AbortableStore::clone() {
  return c10::make_intrusive<AbortableStore>(store_->clone(), alarm_);
}

AbortableStore::Value AbortableStore::compareSet(const std::string& key, const Value& expected, const Value& desired) {
  return store_->compareSet(key, expected, desired);
}

AbortableStore::Value AbortableStore::get(const std::string& key) {
  wait({key});
  return store_->get(key);
}

std::vector<AbortableStore::Value> AbortableStore::multiGet(const Keys& keys) {
  wait(keys);
  return store_->multiGet(keys);
}

void AbortableStore::setTimeout(const std::chrono::milliseconds& timeout) {
  Store::setTimeout(timeout);
  store_->setTimeout(timeout);
}

void AbortableStore::wait(const Keys& keys, const std::chrono::milliseconds& timeout) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + timeout;
  for (auto pause = kFirstPause; !store_->check(keys); pause = std::min(2 * pause, kLongestPause)) {
    TORCH_CHECK_WITH(DistStoreError, timeout == kNoTimeout || Clock::now() < end, "after ", timeout.count(), " ms ",
                     keys.front(), " was not in the store");
    TORCH_CHECK_WITH(DistStoreError, !alarm_->ringsWithin(pause), "the group has failed while ", keys.front(),
                     " was waited for in the store");
  }
}

}  // namespace fairring
