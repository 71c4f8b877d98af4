// Translates a dtype and an operation to the template arguments of DeviceThread, for the CUDA kernels and their tests,
// in a namespace per instruction set, as elements.h says.
//
// If the sign makes no difference to the bits, one instance serves several dtypes.
#pragma once

#include <cstdint>

#include "kernels/elements.h"
#include "kernels/operations.h"
#include "kernels/reduce.h"

namespace fairring::FAIRRING_ISA {

// Returns visit.operator()<Type, Operation>() for the two.
template <class Visitor>
auto visitSum(DType dtype, Visitor visit) {
  switch (dtype) {
    case DType::Float32: return visit.template operator()<Plain<float>, Add>();
    case DType::Float64: return visit.template operator()<Plain<double>, Add>();
    case DType::BFloat16: return visit.template operator()<Brain, Add>();
    case DType::Float16: return visit.template operator()<Half, Add>();
    case DType::Float8E4M3: return visit.template operator()<E4M3, Add>();
    case DType::Float8E5M2: return visit.template operator()<E5M2, Add>();
    case DType::Int8: return visit.template operator()<Wrapping<std::int8_t>, Add>();
    case DType::Int16: return visit.template operator()<Wrapping<std::int16_t>, Add>();
    case DType::Int32: return visit.template operator()<Wrapping<std::int32_t>, Add>();
    case DType::Int64: return visit.template operator()<Wrapping<std::int64_t>, Add>();
    case DType::UInt8: return visit.template operator()<Wrapping<std::uint8_t>, Add>();
    case DType::UInt16: return visit.template operator()<Wrapping<std::uint16_t>, Add>();
    case DType::UInt32: return visit.template operator()<Wrapping<std::uint32_t>, Add>();
    case DType::UInt64: return visit.template operator()<Wrapping<std::uint64_t>, Add>();
    case DType::Bool: break;
  }
  return visit.template operator()<Logical, Or>();
}

template <class Visitor>
auto visitProduct(DType dtype, Visitor visit) {
  switch (dtype) {
    case DType::Float32: return visit.template operator()<Plain<float>, Multiply>();
    case DType::Float64: return visit.template operator()<Plain<double>, Multiply>();
    case DType::BFloat16: return visit.template operator()<Brain, Multiply>();
    case DType::Float16: return visit.template operator()<Half, Multiply>();
    case DType::Float8E4M3: return visit.template operator()<E4M3, Multiply>();
    case DType::Float8E5M2: return visit.template operator()<E5M2, Multiply>();
    case DType::Int8:
    case DType::UInt8: return visit.template operator()<Plain<std::uint8_t>, Multiply>();
    case DType::Int16:
    case DType::UInt16: return visit.template operator()<Plain<std::uint16_t>, Multiply>();
    case DType::Int32:
    case DType::UInt32: return visit.template operator()<Plain<std::uint32_t>, Multiply>();
    case DType::Int64:
    case DType::UInt64: return visit.template operator()<Plain<std::uint64_t>, Multiply>();
    case DType::Bool: break;
  }
  return visit.template operator()<Logical, And>();
}

// End: the end of the order to which NaNs go, so that they win.
template <class Operation, int End, class Visitor>
auto visitChoice(DType dtype, Visitor visit) {
  switch (dtype) {
    case DType::Float32: return visit.template operator()<Ranked<std::int32_t, End * 0x7fffff>, Operation>();
    case DType::Float64: return visit.template operator()<Ranked<std::int64_t, End * 0xfffffffffffff>, Operation>();
    case DType::BFloat16: return visit.template operator()<Ranked<std::int16_t, End * 0x7f>, Operation>();
    case DType::Float16: return visit.template operator()<Ranked<std::int16_t, End * 0x3ff>, Operation>();
    case DType::Float8E4M3: return visit.template operator()<Ranked<std::int8_t, End>, Operation>();
    case DType::Float8E5M2: return visit.template operator()<Ranked<std::int8_t, End * 3>, Operation>();
    case DType::Int8: return visit.template operator()<Plain<std::int8_t>, Operation>();
    case DType::Int16: return visit.template operator()<Plain<std::int16_t>, Operation>();
    case DType::Int32: return visit.template operator()<Plain<std::int32_t>, Operation>();
    case DType::Int64: return visit.template operator()<Plain<std::int64_t>, Operation>();
    case DType::UInt8: return visit.template operator()<Plain<std::uint8_t>, Operation>();
    case DType::UInt16: return visit.template operator()<Plain<std::uint16_t>, Operation>();
    case DType::UInt32: return visit.template operator()<Plain<std::uint32_t>, Operation>();
    case DType::UInt64: return visit.template operator()<Plain<std::uint64_t>, Operation>();
    case DType::Bool: break;
  }
  return visit.template operator()<Logical, Operation>();
}

template <class Operation, class Visitor>
auto visitBits(DType dtype, Visitor visit) {
  if (dtype == DType::Bool) return visit.template operator()<Logical, Operation>();
  switch (bytesOf(dtype)) {
    case 1: return visit.template operator()<Plain<std::uint8_t>, Operation>();
    case 2: return visit.template operator()<Plain<std::uint16_t>, Operation>();
    case 4: return visit.template operator()<Plain<std::uint32_t>, Operation>();
    default: return visit.template operator()<Plain<std::uint64_t>, Operation>();
  }
}

template <class Visitor>
auto visitReduction(Op op, DType dtype, Visitor visit) {
  switch (op) {
    case Op::Sum: break;
    case Op::Product: return visitProduct(dtype, visit);
    case Op::Min: return visitChoice<Least, 1>(dtype, visit);
    case Op::Max: return visitChoice<Greatest, -1>(dtype, visit);
    case Op::BitAnd: return visitBits<And>(dtype, visit);
    case Op::BitOr: return visitBits<Or>(dtype, visit);
    case Op::BitXor: return visitBits<Xor>(dtype, visit);
  }
  return visitSum(dtype, visit);
}

}  // namespace fairring::FAIRRING_ISA
