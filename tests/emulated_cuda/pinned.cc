#include "pinned.h"

#include <map>
#include <mutex>

namespace emulated {
namespace {

struct Pinned {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> ranges;
};

Pinned& pinned() {
  static Pinned& all = *new Pinned;
  return all;
}

}  // namespace

void addPinned(void* address, std::size_t bytes) {
  const std::lock_guard lock(pinned().mutex);
  pinned().ranges[static_cast<std::byte*>(address)] = bytes;
}

std::size_t removePinned(void* address) {
  const std::lock_guard lock(pinned().mutex);
  const auto found = pinned().ranges.find(static_cast<std::byte*>(address));
  if (found == pinned().ranges.end()) return 0;
  const std::size_t bytes = found->second;
  pinned().ranges.erase(found);
  return bytes;
}

std::size_t pinnedBytesFrom(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(pinned().mutex);
  auto found = pinned().ranges.upper_bound(at);
  if (found == pinned().ranges.begin()) return 0;
  --found;
  const std::byte* end = found->first + found->second;
  return at < end ? static_cast<std::size_t>(end - at) : 0;
}

}  // namespace emulated
