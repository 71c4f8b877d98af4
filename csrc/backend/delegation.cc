#include "backend/delegation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"

namespace fairring {
namespace {

using Op = c10d::ReduceOp::RedOpType;

constexpr std::array kOwnOps = {Op::SUM, Op::AVG};

constexpr std::array kOwnDTypes = {
    std::pair{at::ScalarType::Float, DType::Float32},     std::pair{at::ScalarType::Double, DType::Float64},
    std::pair{at::ScalarType::BFloat16, DType::BFloat16}, std::pair{at::ScalarType::Half, DType::Float16},
    std::pair{at::ScalarType::Long, DType::Int64},
};

const auto* find(at::ScalarType dtype) {
  return std::ranges::find(kOwnDTypes, dtype, [](const auto& row) { return row.first; });
}

}  // namespace

DType ownDType(at::ScalarType dtype) {
  const auto* row = find(dtype);
  check(row != kOwnDTypes.end(), ErrorKind::Usage, "tensors of ", dtype, " are the stock backend's to sum");
  return row->second;
}

Server serverOfAllReduce(Op op, at::ScalarType dtype, at::DeviceType device, at::Layout layout) {
  const bool own = device == at::kCPU && layout == at::kStrided && find(dtype) != kOwnDTypes.end() &&
                   std::ranges::find(kOwnOps, op) != kOwnOps.end();
  return own ? Server::Fairring : Server::Stock;
}

}  // namespace fairring
