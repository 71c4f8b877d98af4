#include "backend/entry_order.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <limits>

namespace fairring {
namespace {

// The cost of looking at one possible row, relative to one entry's share of a sort.
constexpr std::uint64_t kCountedRowsPerEntry = 16;

EntryOrder counted(std::span<const std::int64_t> keys, std::uint64_t keysBelow) {
  std::vector<std::uint32_t> next(keysBelow);  // of each possible row: its entries; then where the next of them goes
  for (const std::int64_t key : keys) ++next[static_cast<std::size_t>(key)];
  EntryOrder order;
  const std::uint64_t most = std::min<std::uint64_t>(keysBelow, keys.size());
  order.keys.reserve(most);
  order.begins.reserve(most + 1);
  std::uint32_t before = 0;
  for (std::uint64_t key = 0; key < keysBelow; ++key) {
    const std::uint32_t count = next[key];
    if (count == 0) continue;
    order.keys.push_back(key);
    order.begins.push_back(before);
    next[key] = before;
    before += count;
  }
  order.begins.push_back(before);
  order.entries.resize(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    order.entries[next[static_cast<std::size_t>(keys[i])]++] = static_cast<std::uint32_t>(i);
  return order;
}

EntryOrder sorted(std::span<const std::int64_t> keys) {
  const auto entries = static_cast<std::int64_t>(keys.size());
  const at::Tensor plain = at::from_blob(const_cast<std::int64_t*>(keys.data()), {entries}, at::kLong);
  const auto [inOrder, places] = at::sort(plain, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto* const key = inOrder.const_data_ptr<std::int64_t>();
  const auto* const place = places.const_data_ptr<std::int64_t>();
  EntryOrder order;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && key[i] == key[i - 1]) continue;
    order.keys.push_back(static_cast<std::uint64_t>(key[i]));
    order.begins.push_back(static_cast<std::uint32_t>(i));
  }
  order.begins.push_back(static_cast<std::uint32_t>(keys.size()));
  order.entries.resize(keys.size());
  std::ranges::transform(std::span(place, keys.size()), order.entries.begin(),
                         [](std::int64_t entry) { return static_cast<std::uint32_t>(entry); });
  return order;
}

}  // namespace

EntryOrder EntryOrder::of(std::span<const std::int64_t> keys, std::uint64_t keysBelow) {
  TORCH_CHECK_WITH(ValueError, keys.size() <= std::numeric_limits<std::uint32_t>::max(), "a sparse tensor of ",
                   keys.size(),
                   " entries in no order: at most 2^32 - 1 can be summed at once, so coalesce it in parts");
  return keysBelow / kCountedRowsPerEntry < keys.size() ? counted(keys, keysBelow) : sorted(keys);
}

}  // namespace fairring
