#include "kernels/device_reductions.h"

#include <array>

namespace fairring {
namespace {

constexpr std::array kOps{Op::Sum, Op::Product, Op::Min, Op::Max, Op::BitAnd, Op::BitOr, Op::BitXor};
constexpr std::array kDTypes{DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,    DType::Int8,
                             DType::Int16,   DType::Int32,   DType::Int64,    DType::UInt8,      DType::UInt16,
                             DType::UInt32,  DType::UInt64,  DType::Bool,     DType::Float8E4M3, DType::Float8E5M2};

}  // namespace

DeviceReductions::DeviceReductions(int device) {
  for (const Op op : kOps) {
    for (const DType dtype : kDTypes) {
      if (isDefined(op, dtype)) loaded_.try_emplace({op, dtype}, dtype, op, device);
    }
  }
}

const DeviceReduction& DeviceReductions::of(const Reduction& reduction) const {
  return loaded_.at({reduction.op, reduction.dtype});
}

}  // namespace fairring
