// The memory of the host that the engine reads and writes until a call is done. A contiguous tensor of the CPU is its
// own memory; any other tensor, of whatever strides or device, has a plain copy there, and so has one whose elements
// are to be of another dtype.
//
// On the thread of the call's caller, but for deliver(), which is for any thread.
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
  // The memory's content before: any, or the tensor's elements, once the copies are made.
  enum class Content : std::uint8_t { Any, Elements };

  // Throws c10::Error if elements of the tensor share memory, for they would be written twice, or have none; and as
  // HostCopies::of() does.
  Inbox(const at::Tensor& tensor, at::ScalarType dtype, Content content, HostCopies& copies);

  const at::Tensor& memory() const { return memory_; }
  // deliver() has no work.
  bool isDirect() const { return memory_.is_same(tensor_); }
  void deliver() const;

 private:
  at::Tensor tensor_;
  // Contiguous, of the CPU and that dtype.
  at::Tensor memory_;
  // Null: the tensor is on the CPU.
  std::shared_ptr<const WayBack> back_;
};

struct CallMemory {
  // Contiguous, of the CPU.
  std::vector<at::Tensor> inputs;
  std::vector<Inbox> outputs;
  // Nothing is read before they are there.
  HostCopies copies;

  // The addresses of a tensor's elements that are read, written, or both. write() and change() throw as Inbox does,
  // read() as HostCopies::of(), or if the elements have no memory.
  const std::byte* read(const at::Tensor& tensor);
  std::byte* write(const at::Tensor& tensor);
  std::byte* change(const at::Tensor& tensor) { return change(tensor, tensor.scalar_type()); }
  std::byte* change(const at::Tensor& tensor, at::ScalarType dtype);
};

}  // namespace fairring
