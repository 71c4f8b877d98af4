#include "backend/sparse_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "kernels/entry_sums.h"
#include "kernels/table_sums.h"

namespace fairring {
namespace {

void checkIndices(std::span<const std::int64_t> indices, std::int64_t dim, std::int64_t size) {
  const auto isOutside = [size](std::int64_t index) { return index < 0 || index >= size; };
  const auto outside = std::ranges::find_if(indices, isOutside);
  TORCH_CHECK_WITH(IndexError, outside == indices.end(), "entry ", outside - indices.begin(), " has index ", *outside,
                   " in dimension ", dim, ", which has ", size, " rows");
}

// The key of each entry: its index, where there is one sparse dimension.
at::Tensor keysOf(const at::Tensor& tensor) {
  at::Tensor indices = tensor._indices().contiguous();
  const std::int64_t entries = indices.size(1);
  const auto indicesIn = [&](std::int64_t dim) {
    return std::span(indices.const_data_ptr<std::int64_t>() + dim * entries, static_cast<std::size_t>(entries));
  };
  for (std::int64_t dim = 0; dim < indices.size(0); ++dim) checkIndices(indicesIn(dim), dim, tensor.size(dim));
  if (indices.size(0) == 1) return indices;
  at::Tensor keys = at::zeros({entries}, indices.options());
  auto* const key = keys.mutable_data_ptr<std::int64_t>();
  for (std::int64_t dim = 0; dim < indices.size(0); ++dim) {
    const auto index = indicesIn(dim);
    for (std::size_t i = 0; i < index.size(); ++i) key[i] = key[i] * tensor.size(dim) + index[i];
  }
  return keys;
}

std::span<const std::int64_t> viewOf(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(tensor.numel())};
}

// The entries of a sparse tensor grouped by row: each row once, in the order of their keys, and the entries of a row in
// their order in the tensor.
struct EntryOrder {
  std::vector<std::uint64_t> keys;     // of the rows, each once, ascending
  std::vector<std::uint32_t> entries;  // the entries of the first row, then those of the next
  std::vector<std::uint32_t> begins;   // where each row's entries begin, and the end
};

EntryOrder sorted(const at::Tensor& keys) {
  const auto entries = static_cast<std::size_t>(keys.numel());
  TORCH_CHECK_WITH(ValueError, entries <= std::numeric_limits<std::uint32_t>::max(), "a sparse tensor of ", entries,
                   " entries in no order: at most 2^32 - 1 can be summed at once, so coalesce it in parts");
  const auto [inOrder, places] = at::sort(keys.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const auto key = viewOf(inOrder);
  const auto place = viewOf(places);
  EntryOrder order;
  for (std::size_t i = 0; i < entries; ++i) {
    if (i > 0 && key[i] == key[i - 1]) continue;
    order.keys.push_back(static_cast<std::uint64_t>(key[i]));
    order.begins.push_back(static_cast<std::uint32_t>(i));
  }
  order.begins.push_back(static_cast<std::uint32_t>(entries));
  order.entries.assign(place.begin(), place.end());
  return order;
}

constexpr std::uint64_t kFewElements = 16;

// The rows of all keys, packed.
at::Tensor summed(const at::Tensor& tensor, const at::Tensor& values, const EntryOrder& order, DType dtype) {
  at::Tensor sums = newRows(tensor, order.keys.size());
  const std::uint64_t elements = rowElements(tensor);
  const auto* const from = static_cast<const std::byte*>(values.const_data_ptr());
  auto* out = static_cast<std::byte*>(sums.mutable_data_ptr());
  if (elements <= kFewElements) {
    sumEntries(dtype, {out, from, order.entries, order.begins, elements});
    return sums;
  }
  const std::size_t rowBytes = elements * bytesOf(dtype);
  std::vector<Input> inputs;
  for (std::size_t row = 0; row < order.keys.size(); ++row, out += rowBytes) {
    inputs.clear();
    for (std::size_t i = order.begins[row]; i < order.begins[row + 1]; ++i)
      inputs.push_back({from + std::size_t{order.entries[i]} * rowBytes});
    if (inputs.size() == 1) {
      std::memcpy(out, inputs.front().data, rowBytes);
    } else {
      reduce({.dtype = dtype}, out, inputs, elements);
    }
  }
  return sums;
}

}  // namespace

bool isSparse(const at::Tensor& tensor) {
  return tensor.layout() == at::kSparse && (tensor.device().is_cpu() || tensor.device().is_cuda());
}

std::uint64_t possibleRows(const at::Tensor& tensor) {
  std::uint64_t rows = 1;
  for (std::int64_t dim = 0; dim < tensor.sparse_dim(); ++dim) {
    const auto size = static_cast<std::uint64_t>(tensor.size(dim));
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    TORCH_CHECK_WITH(ValueError, size == 0 || rows <= kMost / size, "the tensor of shape ", tensor.sizes(), " has ",
                     tensor.sparse_dim(), " sparse dimensions with more than 2^63 - 1 rows: take fewer");
    rows *= size;
  }
  return rows;
}

std::uint64_t rowElements(const at::Tensor& tensor) {
  std::uint64_t elements = tensor.is_complex() ? 2 : 1;
  for (const std::int64_t size : tensor.sizes().slice(static_cast<std::size_t>(tensor.sparse_dim())))
    elements *= static_cast<std::uint64_t>(size);
  return elements;
}

LocalRows LocalRows::of(const at::Tensor& tensor, const Reduction& reduction) {
  const at::AutoDispatchBelowAutograd noGradient;
  const std::uint64_t keysBelow = possibleRows(tensor);
  const at::Tensor keys = keysOf(tensor);
  const at::Tensor values = tensor._values().resolve_conj().resolve_neg().contiguous();
  const auto plain = viewOf(keys);
  if (std::ranges::adjacent_find(plain, std::ranges::greater_equal{}) == plain.end())
    return {{plain.begin(), plain.end()}, values};
  constexpr std::uint64_t kTableRowsPerEntry = 4;
  const std::uint64_t elements = rowElements(tensor);
  if (elements <= kFewElements && keysBelow / kTableRowsPerEntry <= plain.size()) {
    at::Tensor sums;
    std::vector<std::uint64_t> own = sumByTable(
        reduction.dtype,
        {.keys = plain,
         .values = static_cast<const std::byte*>(values.const_data_ptr()),
         .keysBelow = keysBelow,
         .rowElements = elements},
        [&](std::uint64_t rows) { return static_cast<std::byte*>((sums = newRows(tensor, rows)).mutable_data_ptr()); });
    return {std::move(own), std::move(sums)};
  }
  EntryOrder order = sorted(keys);
  at::Tensor sums = summed(tensor, values, order, reduction.dtype);
  return {std::move(order.keys), std::move(sums)};
}

at::Tensor newRows(const at::Tensor& tensor, std::uint64_t rows) {
  const at::IntArrayRef dense = tensor.sizes().slice(static_cast<std::size_t>(tensor.sparse_dim()));
  std::vector<std::int64_t> sizes{static_cast<std::int64_t>(rows)};
  sizes.insert(sizes.end(), dense.begin(), dense.end());
  return at::detail::empty_cpu(sizes, tensor.scalar_type());
}

at::Tensor indicesOf(const at::Tensor& tensor, std::span<const std::uint64_t> keys) {
  const auto rows = static_cast<std::int64_t>(keys.size());
  at::Tensor indices = at::detail::empty_cpu({tensor.sparse_dim(), rows}, at::kLong);
  auto* const first = indices.mutable_data_ptr<std::int64_t>();
  if (tensor.sparse_dim() == 1) {  // the usual case: divisions would take longer than the rest
    std::ranges::transform(keys, first, [](std::uint64_t key) { return static_cast<std::int64_t>(key); });
    return indices;
  }
  std::uint64_t below = 1;  // keys of one index of the dimension
  for (std::int64_t dim = tensor.sparse_dim() - 1; dim >= 0; --dim) {
    std::int64_t* const index = first + dim * rows;
    const auto size = static_cast<std::uint64_t>(tensor.size(dim));
    for (std::size_t i = 0; i < keys.size(); ++i) index[i] = static_cast<std::int64_t>(keys[i] / below % size);
    below *= std::max<std::uint64_t>(size, 1);
  }
  return indices;
}

void replaceRows(const at::Tensor& tensor, const at::Tensor& indices, const at::Tensor& values) {
  const at::AutoDispatchBelowAutograd noGradient;
  auto* const impl = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
  impl->set_indices_and_values_unsafe(indices.to(tensor.device()), values.to(tensor.device()));
  impl->set_coalesced(true);
  if (!tensor.is_inference()) impl->bump_version();
}

}  // namespace fairring
