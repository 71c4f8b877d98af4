// Sparse tensors of a device, whose rows travel as those of the host: brought there, each once, and the sums brought
// back. Any thread.
//
// Both ways are on streams of their own, two for each device of the process, so that neither stands behind the other.
// What torch's allocator has given out on one stream is read on another here: it is told of each such use.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>

#include "backend/sparse_work.h"
#include "kernels/reduce.h"

namespace fairring {

struct SparseStreams {
  c10::Stream in;  // to the host
  c10::Stream out;

  static SparseStreams of(const c10::Device& device);
};

// The kernels that sum the rows of a key. Both sum in the order in which the rows stand in the tensor, and round once.
enum class Merging : std::uint8_t { Torchs, Ours };

// What the tensor is when the caller's stream comes there, in pinned memory, its rows each once, so that no more than
// these go to the host; where torch's kernels can't merge as many, as they are. The host waits: how many there are is
// known to the device alone. Its sparse dimensions may have become one. Throws c10::Error, where an index lies outside
// of the tensor among others.
at::Tensor mergedOnHost(const at::Tensor& tensor, DType dtype, Merging merging, const c10::Stream& in);

// For benchmarks: a tensor's rows each once, by our own sums, on its device.
at::Tensor mergedByOurs(const at::Tensor& tensor);

// The call as its user holds it. It is complete when the sums lie on the device, for whichever stream reads them, so
// wait() has the host wait: the tensor has no size before.
class SparseDeviceWork final : public SparseWork {
 public:
  SparseDeviceWork(WorkLabel label, const Operation& operation, const at::Tensor& tensor, LocalRows rows,
                   std::weak_ptr<Runtime> runtime, const c10::Stream& out);

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

 private:
  void writeBack() override;
  std::vector<c10::Device> devices() const override { return {out_.device()}; }
  void complete(c10::ivalue::Future& future) override;

  const c10::Stream out_;
  const c10::Stream callers_;  // current when the call was made
};

}  // namespace fairring
