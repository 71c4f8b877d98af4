#include "transport/spare_memory.h"

#include <algorithm>
#include <utility>

namespace fairring {

namespace {

// A small copy leaves large memory to copies that need it.
std::size_t mostCapacityFor(std::size_t bytes) { return std::max<std::size_t>(4 * bytes, 8 << 10); }

}  // namespace

std::vector<std::byte> SpareMemory::copyOf(std::span<const std::byte> bytes) {
  std::vector<std::byte> copy;
  if (bytes.empty()) return copy;
  const auto found = spare_.lower_bound(bytes.size());
  if (found != spare_.end() && found->first <= mostCapacityFor(bytes.size())) {
    copy = std::move(found->second);
    bytes_ -= found->first;
    spare_.erase(found);
  }
  copy.assign(bytes.begin(), bytes.end());
  return copy;
}

void SpareMemory::keep(std::vector<std::byte>&& copy) {
  const std::size_t capacity = copy.capacity();
  if (capacity == 0 || bytes_ + capacity > kMostBytes) return;
  bytes_ += capacity;
  spare_.emplace(capacity, std::move(copy));
}

}  // namespace fairring
