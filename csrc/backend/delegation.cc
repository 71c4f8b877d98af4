#include "backend/delegation.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace fairring {

Server serverOfReduction(at::DeviceType device, at::Layout layout) {
  return device == at::kCPU && layout == at::kStrided ? Server::Fairring : Server::Stock;
}

bool isOurs(const std::vector<at::Tensor>& tensors) {
  return !tensors.empty() && std::ranges::all_of(tensors, [](const at::Tensor& tensor) {
    return serverOfReduction(tensor.device().type(), tensor.layout()) == Server::Fairring;
  });
}

bool areOnCpu(const std::vector<at::Tensor>& tensors) {
  return std::ranges::all_of(tensors, [](const at::Tensor& tensor) { return tensor.is_cpu(); });
}

void refuseSparse(const char* call, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_WITH(ValueError, !tensor.device().is_cpu() || tensor.layout() == at::kStrided, call,
                     " is not defined for tensors of layout ", tensor.layout(),
                     ": make them dense, or take all_reduce");
  }
}

}  // namespace fairring
