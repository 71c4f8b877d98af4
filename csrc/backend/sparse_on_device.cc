#include "backend/sparse_on_device.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/aminmax.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "backend/cuda_device.h"
#include "backend/sparse_tensor.h"
#include "backend/through_host.h"

namespace fairring {
namespace {

// The memory is not reused before all present work on the stream is done.
void leaveTo(const c10::Stream& stream, const at::Tensor& sparse) {
  const c10::impl::VirtualGuardImpl device(stream.device_type());
  for (const at::Tensor& tensor : {sparse._indices(), sparse._values()})
    device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

// After merging, such an index could be mistaken for another row's.
void requireIndicesInside(const at::Tensor& tensor) {
  if (tensor._nnz() == 0) return;
  const auto [least, most] = at::aminmax(tensor._indices(), /*dim=*/1);
  const at::Tensor lowest = least.cpu();
  const at::Tensor highest = most.cpu();
  for (std::int64_t dim = 0; dim < tensor.sparse_dim(); ++dim) {
    const std::int64_t low = lowest.const_data_ptr<std::int64_t>()[dim];
    const std::int64_t high = highest.const_data_ptr<std::int64_t>()[dim];
    TORCH_CHECK_WITH(IndexError, low >= 0 && high < tensor.size(dim), "its indices in dimension ", dim, " go from ",
                     low, " to ", high, ", and there are ", tensor.size(dim), " rows");
  }
}

// torch's kernel has counted elements in 32 bits. The host merges larger ones.
bool torchMerges(const at::Tensor& plain) {
  return plain._values().numel() <= std::numeric_limits<std::int32_t>::max();
}

at::Tensor merged(const at::Tensor& plain) {
  if (plain.is_coalesced() || plain._nnz() == 0) return plain;
  return torchMerges(plain) ? plain.coalesce() : plain;
}

// Not there yet: it comes on the current stream.
at::Tensor pinnedCopy(const at::Tensor& tensor) {
  const at::Tensor copy = hostMemory(tensor.sizes(), tensor.scalar_type(), tensor.device().type());
  copy.copy_(tensor, /*non_blocking=*/true);
  return copy;
}

}  // namespace

at::Tensor mergedOnHost(const at::Tensor& tensor, const c10::Stream& in) {
  const at::AutoDispatchBelowAutograd noGradient;
  c10::Event written(in.device_type());
  written.record(callersStream(in.device()));
  written.block(in);
  const c10::StreamGuard onIt(in);
  leaveTo(in, tensor);
  if (!tensor.is_coalesced()) requireIndicesInside(tensor);
  const at::Tensor values = tensor._values().resolve_conj().resolve_neg();  // which coalesce() ignores
  const at::Tensor plain =
      at::_sparse_coo_tensor_unsafe(tensor._indices(), values, tensor.sizes(), {}, tensor.is_coalesced());
  const at::Tensor there = merged(plain);
  const at::Tensor indices = pinnedCopy(there._indices());
  const at::Tensor rows = pinnedCopy(there._values());
  in.synchronize();
  return at::_sparse_coo_tensor_unsafe(indices, rows, there.sizes(), {}, there.is_coalesced());
}

SparseDeviceWork::SparseDeviceWork(WorkLabel label, const Operation& operation, const at::Tensor& tensor,
                                   LocalRows rows, std::weak_ptr<Runtime> runtime, const c10::Stream& out)
    : SparseWork(std::move(label), operation, tensor, std::move(rows), std::move(runtime)),
      out_(out),
      callers_(callersStream(out.device())) {}

// The copies wait until they are done, so no event need order anything. The sums are given out on `out_`, and may be
// dropped by a caller that never called wait().
void SparseDeviceWork::writeBack() {
  const c10::StreamGuard onIt(out_);
  SparseWork::writeBack();
  leaveTo(callers_, tensor());
}

bool SparseDeviceWork::wait(std::chrono::milliseconds timeout) {
  SparseWork::wait(timeout);
  leaveTo(callersStream(out_.device()), tensor());
  return true;
}

}  // namespace fairring
