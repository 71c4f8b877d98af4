#include "backend/call_memory.h"

#include <ATen/MemoryOverlap.h>

namespace fairring {
namespace {

// A tensor may claim more memory than it has: FSDP's freed parameters do, and those of less than a byte an element.
void requireMemory(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || !isPlain(tensor)) return;
  const std::uint64_t begin = static_cast<std::uint64_t>(tensor.storage_offset()) * tensor.itemsize();
  const std::uint64_t has = tensor._is_zerotensor() ? 0 : tensor.storage().nbytes();
  TORCH_CHECK(begin + tensor.nbytes() <= has, "its ", tensor.numel(), " elements of ", tensor.scalar_type(), " take ",
              begin + tensor.nbytes(), " B, and its storage has ", has,
              " B: it was freed, or is none that can be sent");
}

at::Tensor plain(const at::Tensor& tensor) {
  return isPlain(tensor) ? tensor : tensor.resolve_conj().resolve_neg().contiguous();
}

}  // namespace

bool isPlain(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

Inbox::Inbox(const at::Tensor& tensor, at::ScalarType dtype, Content content, HostCopies& copies) : tensor_(tensor) {
  const at::AutoDispatchBelowAutograd noGradient;
  requireMemory(tensor);
  at::assert_no_internal_overlap(tensor);
  back_ = WayBack::of(tensor);
  if (!back_ && isPlain(tensor) && tensor.scalar_type() == dtype) {
    memory_ = tensor;
  } else if (content == Content::Elements) {
    memory_ = copies.of(plain(tensor.to(dtype)));
  } else {
    memory_ = hostMemory(tensor.sizes(), dtype, tensor.device().type());
  }
}

void Inbox::deliver() const {
  if (isDirect()) return;
  const auto copy = [this] {
    const Writing writing(tensor_);
    tensor_.copy_(memory_, /*non_blocking=*/true);
  };
  back_ ? back_->copy(copy) : copy();
}

const std::byte* CallMemory::read(const at::Tensor& tensor) {
  const at::AutoDispatchBelowAutograd noGradient;
  requireMemory(tensor);
  return static_cast<const std::byte*>(inputs.emplace_back(copies.of(plain(tensor))).const_data_ptr());
}

std::byte* CallMemory::write(const at::Tensor& tensor) {
  const Inbox& output = outputs.emplace_back(tensor, tensor.scalar_type(), Inbox::Content::Any, copies);
  return static_cast<std::byte*>(output.memory().data_ptr());
}

std::byte* CallMemory::change(const at::Tensor& tensor, at::ScalarType dtype) {
  const Inbox& output = outputs.emplace_back(tensor, dtype, Inbox::Content::Elements, copies);
  return static_cast<std::byte*>(output.memory().data_ptr());
}

}  // namespace fairring
