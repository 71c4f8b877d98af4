// Arguments and results of torch's operators, seen from the processor: the same memory as tensors of the CPU, or only
// their shapes as tensors of meta. Any thread.
#pragma once

#include <ATen/ATen.h>

namespace emulated {

// A CUDA tensor as one of the CPU with the same memory; a sparse one, and one of the CPU, is copied as it is now.
at::Tensor onCpu(const at::Tensor& tensor);
at::Tensor onMeta(const at::Tensor& tensor);
// A new one with the same shape and strides.
at::Tensor emptyLike(const at::Tensor& tensor, at::Device device);
void copyValues(const at::Tensor& to, const at::Tensor& from);  // both of the CPU, of one shape

// A value with its tensors put through a function; devices become the given one, generators the CPU's.
c10::IValue mapped(const c10::IValue& value, at::Device device, const std::function<at::Tensor(const at::Tensor&)>& to);
void forEachTensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& visit);

}  // namespace emulated
