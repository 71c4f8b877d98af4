#include "backend/abortable_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace fairring {
namespace {

constexpr std::chrono::milliseconds kFirstPause{1};  // between two polls of the store
constexpr std::chrono::milliseconds kLongestPause{64};

}  // namespace

AbortableStore::AbortableStore(c10::intrusive_ptr<c10d::Store> store, std::stop_token failure)
    : Store(store->getTimeout()), store_(std::move(store)), failure_(std::move(failure)) {}

c10::intrusive_ptr<c10d::Store> AbortableStore::clone() {
  return c10::make_intrusive<AbortableStore>(store_->clone(), failure_);
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
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  for (auto pause = kFirstPause; !store_->check(keys); pause = std::min(2 * pause, kLongestPause)) {
    TORCH_CHECK_WITH(DistStoreError, timeout == kNoTimeout || Clock::now() < end, "after ", timeout.count(), " ms ",
                     keys.front(), " was not in the store");
    never.wait_for(lock, failure_, pause, [] { return false; });
    TORCH_CHECK_WITH(DistStoreError, !failure_.stop_requested(), "the group has failed while ", keys.front(),
                     " was waited for in the store");
  }
}

}  // namespace fairring
