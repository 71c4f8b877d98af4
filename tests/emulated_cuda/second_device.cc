// A device of another kind than CUDA's, for groups whose ranks have tensors of several: torch's PrivateUse1, in memory
// of the host. Its one stream of work is the caller's thread, so its streams and events are names alone; it has no
// pinned memory. Operators that are not here run on the CPU, on copies, so all that give views are here. Loaded into a
// program by torch.ops.load_library.
#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

namespace {

c10::Device onlyDevice() { return {c10::kPrivateUse1, 0}; }

class Memory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : std::malloc(bytes);
    return {data, data, &std::free, onlyDevice()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;
REGISTER_ALLOCATOR(c10::kPrivateUse1, &memory);

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return onlyDevice(); }
  c10::Device getDevice() const override { return onlyDevice(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return current(); }
  c10::Stream getDefaultStream(c10::Device) const override { return named(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return named(1); }
  c10::Stream exchangeStream(c10::Stream next) const override { return std::exchange(current(), next); }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override { *event = &memory; }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}

 private:
  static c10::Stream named(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, onlyDevice(), id); }
  static c10::Stream& current() {
    thread_local c10::Stream stream = named(0);
    return stream;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &memory, kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor emptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, &memory, kKeys, c10::dtype_or_default(dtype));
}

// The tensor's own memory, as one of the CPU.
at::Tensor onCpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  const auto bytes = static_cast<std::ptrdiff_t>(tensor.storage().nbytes());
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       c10::DataPtr(tensor.storage().mutable_data(), c10::Device(c10::kCPU)));
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  view._set_conj(tensor.is_conj());
  view._set_neg(tensor.is_neg());
  return view;
}

at::Tensor copyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  onCpu(to).copy_(onCpu(from));
  return to;
}

void byTheCpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &emptyStrided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("view", &at::native::view);
  library.impl("view_as_complex", &at::native::view_as_complex);
  library.impl("view_as_real", &at::native::view_as_real);
  library.impl("_copy_from", &copyFrom);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&byTheCpu>());
}

}  // namespace
