#include "backend/cuda_rows.h"

#ifdef FAIRRING_CUDA

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <vector>

#include "backend/cuda_device.h"
#include "backend/sparse_tensor.h"
#include "backend/tracked_work.h"
#include "base/error.h"
#include "kernels/device_rows.h"

namespace fairring {
namespace {

at::Tensor keysOf(const at::Tensor& tensor) {
  const at::Tensor indices = tensor._indices();
  at::Tensor keys = at::zeros({indices.size(1)}, indices.options());
  for (std::int64_t dim = 0; dim < indices.size(0); ++dim) keys.mul_(tensor.size(dim)).add_(indices.select(0, dim));
  return keys;
}

template <class T>
T* place(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

at::Tensor merged(const at::Tensor& tensor, DType dtype) {
  const int device = tensor.device().index();
  const c10::Stream current = c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
  auto* const stream = static_cast<cudaStream_t>(rawStream(current));
  const at::Tensor keys = keysOf(tensor);
  const at::Tensor values = tensor._values().contiguous();
  const auto entries = static_cast<std::uint64_t>(keys.numel());
  const std::uint64_t keysBelow = possibleRows(tensor);
  const auto memory = [&](std::uint64_t count, at::ScalarType type) {
    return at::empty({static_cast<std::int64_t>(count)}, keys.options().dtype(type));
  };
  const at::Tensor unique = memory(entries, at::kLong);
  const at::Tensor begins = memory(entries, at::kInt);
  const at::Tensor order = memory(entries, at::kInt);
  const at::Tensor count = memory(1, at::kLong);
  const at::Tensor scratch = memory(matchScratchBytes(entries, device), at::kByte);
  const MatchedRows matched{.keys = place<std::uint64_t>(unique),
                            .begins = place<std::uint32_t>(begins),
                            .order = place<std::uint32_t>(order),
                            .count = place<std::uint64_t>(count)};
  matchRows(matched, static_cast<const std::uint64_t*>(keys.const_data_ptr()), entries, keysBelow,
            place<std::byte>(scratch), device, stream);
  const auto rows = count.item<std::int64_t>();  // for which the host waits
  std::vector<std::int64_t> sizes = values.sizes().vec();
  sizes[0] = rows;
  const at::Tensor sums = at::empty(sizes, values.options());
  sumRows(dtype, sums.mutable_data_ptr(), values.const_data_ptr(), rowElements(tensor), matched,
          static_cast<std::uint64_t>(rows), entries, device, stream);
  sizes[0] = static_cast<std::int64_t>(keysBelow);
  return at::_sparse_coo_tensor_unsafe(unique.narrow(0, 0, rows).unsqueeze(0), sums, sizes, {}, true);
}

}  // namespace

at::Tensor mergedRows(const at::Tensor& tensor, DType dtype) {
  try {
    return merged(tensor, dtype);
  } catch (const Failure& failure) {
    std::rethrow_exception(toException(failure.error()));
  }
}

}  // namespace fairring

#else

#include <stdexcept>

namespace fairring {

at::Tensor mergedRows(const at::Tensor& /*tensor*/, DType /*dtype*/) {
  throw std::logic_error("this build has no CUDA");
}

}  // namespace fairring

#endif
