// The memory of the host that the engine reads and writes until a call is done. A contiguous tensor of the CPU is its
// own memory; any other tensor, of whatever strides or device, has a plain copy there, and so has one whose elements
// are to be of another dtype.
//
// Pure, except for the tensors' own memory: any thread.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/host_copies.h"
#include "backend/through_host.h"

namespace fairring {

// Whether the tensor's memory holds its elements and nothing else, in order.
bool isPlain(const at::Tensor& tensor);

// In its scope the tensor may be written, without autograd. Inference mode alone may write an inference tensor, and the
// tensor's user may have left it.
class Writing {
 public:
  explicit Writing(const at::Tensor& tensor) : mode_(tensor.is_inference() || c10::InferenceMode::is_enabled()) {}

 private:
  const c10::InferenceMode mode_;
  const at::AutoDispatchBelowAutograd noGradient_;
};

// Where a tensor's elements are written before deliver() brings them to the tensor.
class Inbox {
 public:
  // What is there before: nothing, or the tensor's elements, once the copies are made.
  enum class Content : std::uint8_t { None, Elements };

  // Throws c10::Error if elements of the tensor share memory, for they would be written twice; and as HostCopies::of()
  // does.
  Inbox(const at::Tensor& tensor, at::ScalarType dtype, Content content, HostCopies& copies);

  const at::Tensor& memory() const { return memory_; }
  bool isDirect() const { return memory_.is_same(tensor_); }  // deliver() has no work
  void deliver() const;

 private:
  at::Tensor tensor_;
  at::Tensor memory_;                    // contiguous, of the CPU and that dtype
  std::shared_ptr<const WayBack> back_;  // null: the tensor is on the CPU
};

struct CallMemory {
  std::vector<at::Tensor> inputs;  // contiguous, of the CPU
  std::vector<Inbox> outputs;
  HostCopies copies;  // nothing is read before they are there

  // The addresses of a tensor's elements that are read, written, or both. Each throws as Inbox does.
  const std::byte* read(const at::Tensor& tensor);
  std::byte* write(const at::Tensor& tensor);
  std::byte* change(const at::Tensor& tensor) { return change(tensor, tensor.scalar_type()); }
  std::byte* change(const at::Tensor& tensor, at::ScalarType dtype);
};

}  // namespace fairring
