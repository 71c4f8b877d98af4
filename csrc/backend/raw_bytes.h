// The user's tensors as rows of bytes of the host, for calls that move elements and don't look at them. So they may be
// of any dtype and shape, and need not be contiguous. A single contiguous tensor of the CPU is its own row; anything
// else is copied.
//
// Pure, except for the tensors' own memory: any thread.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/host_copies.h"
#include "backend/through_host.h"

namespace fairring {

std::int64_t byteCount(const std::vector<at::Tensor>& tensors);

// All elements of all of them, in order, once these copies are there. Throws as HostCopies::of() does.
at::Tensor bytesOf(const std::vector<at::Tensor>& tensors, HostCopies& copies);

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
  // The elements that the receiver leaves unwritten: there are none, or they keep their values.
  enum class Rest : std::uint8_t { None, Stays };

  // All are on one device. Throws c10::Error if elements of a tensor share memory, and as HostCopies::of() does.
  explicit Inbox(std::vector<at::Tensor> tensors, Rest rest = Rest::None);

  const at::Tensor& bytes() const { return bytes_; }
  bool isDirect() const { return tensors_.empty(); }  // the bytes are the tensor's own memory: deliver() has no work
  void deliver() const;

 private:
  void copy() const;

  std::vector<at::Tensor> tensors_;
  std::shared_ptr<const WayBack> back_;  // null: they are on the CPU
  at::Tensor bytes_;
};

}  // namespace fairring
