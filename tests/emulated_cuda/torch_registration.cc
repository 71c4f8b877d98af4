// Puts OperatorCall in the place of torch's CUDA kernels as it is loaded, after torch. What makes, views and resizes
// tensors stays torch's own.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "emulated.h"
#include "torch_operators.h"
#include "torch_values.h"

namespace {

void call(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  emulated::OperatorCall(operation, stack).run();
}

bool staysTorchs(const c10::OperatorName& name, const c10::FunctionSchema& schema) {
  static const std::unordered_set<std::string> names{
      "aten::copy_",           "aten::_copy_from",    "aten::_copy_from_and_resize", "aten::record_stream",
      "aten::is_pinned",       "aten::_pin_memory",   "aten::_local_scalar_dense",   "aten::resize_",
      "aten::_resize_output_", "aten::_assert_async", "aten::_efficientzerotensor",  "aten::_has_same_storage_numel",
      "aten::is_set_to"};
  if (names.contains(name.name) || !name.name.starts_with("aten::")) return true;
  for (const char* begin : {"aten::empty", "aten::_empty", "aten::set_"}) {
    if (name.name.starts_with(begin)) return true;
  }
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

bool isOfSparse(const std::string& name) {
  static const std::unordered_set<std::string> names{
      "_coalesce", "add",   "add_", "sub",         "sub_",        "mul",       "mul_",  "div", "neg",
      "mm",        "addmm", "sum",  "_sparse_sum", "sparse_mask", "_to_dense", "isnan", "any", "abs"};
  return name.starts_with("aten::") && names.contains(name.substr(6));
}

void replace(c10::DispatchKey key, bool (*isReplaced)(const c10::OperatorName&, const c10::FunctionSchema&)) {
  static auto& held = *new std::vector<c10::RegistrationHandleRAII>;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(key)) {
    const auto operation = dispatcher.findSchema(name);
    if (!operation || !isReplaced(name, operation->schema())) continue;
    held.push_back(dispatcher.registerImpl(name, key, c10::KernelFunction::makeFromBoxedFunction<&call>(), std::nullopt,
                                           nullptr, "emulated CUDA"));
  }
}

// Tensors that lie alike are copied by torch, with the runtime's copies; others by the processor, as work of the
// stream.
at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool isNonBlocking) {
  const bool alike = self.dtype() == source.dtype() && self.sizes() == source.sizes() &&
                     self.strides() == source.strides() && self.is_non_overlapping_and_dense() &&
                     self.is_conj() == source.is_conj() && self.is_neg() == source.is_neg();
  if (!self.is_cuda() || !source.is_cuda() || alike) {
    static const auto native = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("aten::copy_", "")
                                   .typed<at::Tensor&(at::Tensor&, const at::Tensor&, bool)>();
    return native.redispatch(c10::DispatchKeySet(c10::DispatchKey::CompositeExplicitAutograd), self, source,
                             isNonBlocking);
  }
  TORCH_CHECK(self.device() == source.device(), "emulated devices copy between each other only tensors that lie alike");
  const c10::cuda::CUDAGuard guard(self.device());
  emulated::enqueue(c10::cuda::getCurrentCUDAStream().stream(), "aten::copy_",
                    [to = emulated::onCpu(self), from = emulated::onCpu(source.expand(self.sizes()))] {
                      const at::AutoDispatchBelowADInplaceOrView below;
                      to.copy_(from);
                    });
  return self;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  replace(c10::DispatchKey::CUDA, [](const auto& name, const auto& schema) { return !staysTorchs(name, schema); });
  replace(c10::DispatchKey::SparseCUDA, [](const auto& name, const auto&) { return isOfSparse(name.name); });
  library.impl("copy_", copy);
  at::globalContext().setUserEnabledCuDNN(false);
  // Only the form of attention that is composed of other operators has kernels here.
  at::globalContext().setSDPUseFlash(false);
  at::globalContext().setSDPUseMemEfficient(false);
  at::globalContext().setSDPUseCuDNN(false);
}
