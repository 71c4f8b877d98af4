#include "backend/abortable_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace fairring {

AbortableStore::AbortableStore(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<std::atomic<bool>> aborted)
    : Store(store->getTimeout()), store_(std::move(store)), aborted_(std::move(aborted)) {}

c10::intrusive_ptr<c10d::Store> AbortableStore::clone() {
  return c10::make_intrusive<AbortableStore>(store_->clone(), aborted_);
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
  for (;;) {
    TORCH_CHECK_WITH(DistStoreError, !*aborted_, "the group has failed while ", keys.front(), " was waited for");
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const bool last = timeout != kNoTimeout && left <= kPiece;
    try {
      return store_->wait(keys, last ? std::max(left, std::chrono::milliseconds(1)) : kPiece);
    } catch (const c10::DistStoreError&) {
      if (last) throw;
    }
  }
}

}  // namespace fairring
