#include "torch_values.h"

#include "emulated.h"

namespace emulated {

at::Tensor onCpu(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_cuda()) return tensor.is_cpu() ? tensor.detach().clone() : tensor;
  if (tensor.is_sparse()) {
    const at::Tensor indices = onCpu(tensor._indices()).clone();
    const at::Tensor values = onCpu(tensor._values()).clone();
    return at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes())._coalesced_(tensor.is_coalesced());
  }
  void* data = tensor.numel() == 0 ? nullptr : reach(tensor.data_ptr(), 0, "an operator of torch");
  const auto options = tensor.options().device(at::kCPU).requires_grad(false);
  return at::from_blob(data, tensor.sizes(), tensor.strides(), [](void*) {}, options);
}

at::Tensor onMeta(const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return tensor;
  return emptyLike(tensor, at::kMeta);
}

at::Tensor emptyLike(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined()) return tensor;
  if (tensor.is_sparse()) {
    const at::Tensor indices = emptyLike(tensor._indices(), device);
    const at::Tensor values = emptyLike(tensor._values(), device);
    return at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes())._coalesced_(tensor.is_coalesced());
  }
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device).requires_grad(false));
}

void copyValues(const at::Tensor& to, const at::Tensor& from) {
  if (to.defined() && to.numel() > 0) to.copy_(from);
}

c10::IValue mapped(const c10::IValue& value, at::Device device,
                   const std::function<at::Tensor(const at::Tensor&)>& to) {
  if (value.isTensor()) return to(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(to(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector())
      list.push_back(tensor ? std::optional(to(*tensor)) : tensor);
    return list;
  }
  if (value.isDevice()) return device;
  return value.isGenerator() && device.is_meta() ? c10::IValue() : value;
}

void forEachTensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit) {
  const auto visitDefined = [&visit](const at::Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
  };
  if (value.isTensor()) visitDefined(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visitDefined(tensor);
  }
  if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor) visitDefined(*tensor);
    }
  }
}

}  // namespace emulated
