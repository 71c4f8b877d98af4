// The type (elements.h) and the operation that sum a dtype, for loops that are compiled only once, because they wait
// for memory.
#pragma once

#define FAIRRING_ISA any_processor
#include "kernels/elements.h"
#include "kernels/operations.h"
#include "kernels/reduce.h"

namespace fairring {

// Calls visitor.operator()<Type, Operation>(arguments...).
template <class Visitor, class... Arguments>
auto visitSum(DType dtype, const Visitor& visitor, const Arguments&... arguments) {
  using namespace any_processor;
  switch (dtype) {
    case DType::Float32: return visitor.template operator()<Plain<float>, Add>(arguments...);
    case DType::Float64: return visitor.template operator()<Plain<double>, Add>(arguments...);
    case DType::BFloat16: return visitor.template operator()<Brain, Add>(arguments...);
    case DType::Float16: return visitor.template operator()<Half, Add>(arguments...);
    case DType::Float8E4M3: return visitor.template operator()<E4M3, Add>(arguments...);
    case DType::Float8E5M2: return visitor.template operator()<E5M2, Add>(arguments...);
    case DType::Int8:
    case DType::UInt8: return visitor.template operator()<Plain<std::uint8_t>, Add>(arguments...);
    case DType::Int16:
    case DType::UInt16: return visitor.template operator()<Plain<std::uint16_t>, Add>(arguments...);
    case DType::Int32:
    case DType::UInt32: return visitor.template operator()<Plain<std::uint32_t>, Add>(arguments...);
    case DType::Int64:
    case DType::UInt64: return visitor.template operator()<Plain<std::uint64_t>, Add>(arguments...);
    case DType::Bool: break;
  }
  return visitor.template operator()<Logical, Or>(arguments...);
}

}  // namespace fairring
