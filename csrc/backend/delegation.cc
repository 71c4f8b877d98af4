#include "backend/delegation.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace fairring {

// A tensor of the meta device has no elements.
bool Delegation::serves(const at::Tensor& tensor) const {
  return !tensor.is_meta() && !(hasStock_ && tensor.is_cuda());
}

bool Delegation::serves(const Tensors& tensors) const {
  return std::ranges::all_of(tensors, [this](const at::Tensor& tensor) { return serves(tensor); });
}

bool Delegation::reduces(const Tensors& tensors) const {
  return !tensors.empty() && std::ranges::all_of(tensors, [this](const at::Tensor& tensor) {
    return serves(tensor) && tensor.layout() == at::kStrided;
  });
}

void Delegation::requireDense(const char* call, const Tensors& tensors) const {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_WITH(ValueError, serves(tensor) && tensor.layout() == at::kStrided, call,
                     ": expected are dense tensors of devices that Fairring serves; one is ", tensor.layout(), " on ",
                     tensor.device());
  }
}

void Delegation::refuseSparse(const char* call, const Tensors& tensors) const {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_WITH(ValueError, !serves(tensor) || tensor.layout() == at::kStrided, call,
                     " is not defined for tensors of layout ", tensor.layout(),
                     ": make them dense, or take all_reduce");
  }
}

}  // namespace fairring
