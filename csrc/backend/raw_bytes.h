// The user's tensors as rows of bytes, for calls that move elements and don't look at them. So they may be of any dtype
// and shape, and need not be contiguous. A single contiguous tensor is its own row; anything else is copied.
//
// Pure, except for the tensors' own memory: any thread.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <vector>

namespace fairring {

std::int64_t byteCount(const std::vector<at::Tensor>& tensors);

// All elements of all of them, in order.
at::Tensor bytesOf(const std::vector<at::Tensor>& tensors);

// In its scope the tensor may be written, without autograd. Inference mode alone may write an inference tensor, and the
// tensor's user may have left it.
class Writing {
 public:
  explicit Writing(const at::Tensor& tensor) : mode_(tensor.is_inference() || c10::InferenceMode::is_enabled()) {}

 private:
  const c10::InferenceMode mode_;
  const at::AutoDispatchBelowAutograd noGradient_;
};

// Tensors that are to be written: the receiver writes the bytes first, then calls deliver().
class Inbox {
 public:
  // Throws c10::Error if elements of a tensor share memory.
  explicit Inbox(std::vector<at::Tensor> tensors);

  const at::Tensor& bytes() const { return bytes_; }
  bool isDirect() const { return tensors_.empty(); }  // the bytes are the tensor's own memory: deliver() has no work
  void deliver() const;

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor bytes_;
};

}  // namespace fairring
