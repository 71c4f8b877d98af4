// Sparse tensors of a device. Their rows travel as those of the host do: each is copied to the host once, and the sums
// are copied back. Any thread.
//
// Memory that torch's allocator gave out on one stream is read on another here: the allocator is told of each such use.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "backend/sparse_work.h"

namespace fairring {

// The tensor as the caller's stream leaves it, in pinned memory, with duplicate rows merged so that no more than these
// go to the host: torch's kernels sum them in their order and round once. Rows that are too many for these stay as they
// are. The host waits, since only the device knows how many rows there are. Throws c10::Error, for example if an index
// lies outside of the tensor.
at::Tensor mergedOnHost(const at::Tensor& tensor, const c10::Stream& in);

// The call as its user holds it. It is complete when the sums lie on the device, for any stream that reads them. So
// wait() makes the host wait, because the tensor has no size before.
class SparseDeviceWork final : public SparseWork {
 public:
  SparseDeviceWork(WorkLabel label, const Operation& operation, const at::Tensor& tensor, LocalRows rows,
                   std::weak_ptr<Runtime> runtime, const c10::Stream& out);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  void writeBack() override;

  const c10::Stream out_;
  const c10::Stream callers_;  // current when the call was made
};

}  // namespace fairring
