// Checks the requirements of calls that move elements on their tensors. A tensor that does not meet them is a
// ValueError on the caller's thread, before anything is sent. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fairring {

// `call`: the user's name of it.
void requireSameDTypes(const char* call, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs);
void requireCount(const char* call, const char* what, std::size_t given, std::size_t expected);
void requireElements(const char* call, std::int64_t outputs, std::int64_t inputs);

}  // namespace fairring
