#include "backend/tensor_checks.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace fairring {

void requireSameDTypes(const char* call, const std::vector<at::Tensor>& outputs,
                       const std::vector<at::Tensor>& inputs) {
  for (std::size_t i = 0; i < std::min(outputs.size(), inputs.size()); ++i) {
    TORCH_CHECK_WITH(ValueError, outputs[i].scalar_type() == inputs[i].scalar_type(), call, ": an output of ",
                     outputs[i].scalar_type(), " for an input of ", inputs[i].scalar_type());
  }
}

void requireCount(const char* call, const char* what, std::size_t given, std::size_t expected) {
  TORCH_CHECK_WITH(ValueError, given == expected, call, ": expected are ", expected, " ", what, ", given are ", given);
}

void requireElements(const char* call, std::int64_t outputs, std::int64_t inputs) {
  TORCH_CHECK_WITH(ValueError, outputs == inputs, call, ": the output has room for ", outputs, " elements of ", inputs);
}

}  // namespace fairring
