#include "backend/reduction.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace fairring {
namespace {

using TorchOp = c10d::ReduceOp::RedOpType;
using TorchDType = at::ScalarType;

struct NamedOp {
  TorchOp torch;
  const char* name;
  Op op;
};

constexpr std::array kOperations = {
    NamedOp{TorchOp::SUM, "SUM", Op::Sum},
    NamedOp{TorchOp::AVG, "AVG", Op::Sum},
    NamedOp{TorchOp::PRODUCT, "PRODUCT", Op::Product},
    NamedOp{TorchOp::MIN, "MIN", Op::Min},
    NamedOp{TorchOp::MAX, "MAX", Op::Max},
    NamedOp{TorchOp::BAND, "BAND", Op::BitAnd},
    NamedOp{TorchOp::BOR, "BOR", Op::BitOr},
    NamedOp{TorchOp::BXOR, "BXOR", Op::BitXor},
    NamedOp{TorchOp::PREMUL_SUM, "PREMUL_SUM", Op::Sum},
};

constexpr std::array kDTypes = {
    std::pair{TorchDType::Float, DType::Float32},
    std::pair{TorchDType::Double, DType::Float64},
    std::pair{TorchDType::BFloat16, DType::BFloat16},
    std::pair{TorchDType::Half, DType::Float16},
    std::pair{TorchDType::Char, DType::Int8},
    std::pair{TorchDType::Short, DType::Int16},
    std::pair{TorchDType::Int, DType::Int32},
    std::pair{TorchDType::Long, DType::Int64},
    std::pair{TorchDType::Byte, DType::UInt8},
    std::pair{TorchDType::UInt16, DType::UInt16},
    std::pair{TorchDType::UInt32, DType::UInt32},
    std::pair{TorchDType::UInt64, DType::UInt64},
    std::pair{TorchDType::Bool, DType::Bool},
    std::pair{TorchDType::ComplexHalf, DType::Float16},
    std::pair{TorchDType::ComplexFloat, DType::Float32},
    std::pair{TorchDType::ComplexDouble, DType::Float64},
};

// The reason why an operation is not defined for a dtype that has others, and the remedy; null if it is defined.
const char* objection(const NamedOp& operation, TorchDType dtype, DType own) {
  if (operation.torch == TorchOp::PREMUL_SUM && !isFloat(own)) {
    return "only floats have a factor: multiply the tensor, then take SUM";
  }
  if (operation.torch == TorchOp::AVG && own == DType::Bool) return "convert the tensor to a number type first";
  if (at::isComplexType(dtype) && operation.op != Op::Sum) {
    return "complex tensors have SUM, AVG and PREMUL_SUM; for another operation on each part take torch.view_as_real";
  }
  if (!isDefined(operation.op, own)) {
    return "only integers and bool have bit operations: view the tensor as integers of its width first";
  }
  return nullptr;
}

double factorOf(const char* call, const c10d::ReduceOp& op) {
  check(op.supplement_.defined(), ErrorKind::Usage, call,
        " with PREMUL_SUM, but without a factor: make it with torch.distributed._make_nccl_premul_sum(factor)");
  // Only PREMUL_SUM has a supplement, and only of this type.
  const auto& supplement = static_cast<const c10d::NCCLPreMulSumSupplement&>(*op.supplement_);
  return supplement.tensor_factor.defined() ? supplement.tensor_factor.item().toDouble() : supplement.double_factor;
}

// Not reduced on the CPU, as in Gloo.
constexpr std::array kDeviceDTypes = {
    std::pair{TorchDType::Float8_e4m3fn, DType::Float8E4M3},
    std::pair{TorchDType::Float8_e5m2, DType::Float8E5M2},
};

DType ownDType(const char* call, TorchDType dtype, bool onDevice) {
  constexpr auto torchs = [](const auto& pair) { return pair.first; };
  const auto* onlyThere = std::ranges::find(kDeviceDTypes, dtype, torchs);
  if (onDevice && onlyThere != std::end(kDeviceDTypes)) return onlyThere->second;
  const auto* row = std::ranges::find(kDTypes, dtype, torchs);
  check(row != std::end(kDTypes), ErrorKind::Usage, call, " is not defined for tensors of ", dtype,
        " on the CPU: convert the tensor to another dtype first, such as bfloat16 or float32");
  return row->second;
}

const NamedOp* find(TorchOp op) { return std::ranges::find(kOperations, op, &NamedOp::torch); }

}  // namespace

const char* name(TorchOp op) {
  const NamedOp* operation = find(op);
  return operation == std::end(kOperations) ? "an unknown operation" : operation->name;
}

std::uint64_t ownElements(const at::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel()) * (tensor.is_complex() ? 2 : 1);
}

Block bytesBlock(const at::Tensor& tensor) {
  return {.elements = tensor.nbytes(), .reduction = {.dtype = DType::UInt8}};
}

BlockRows rowsOnDevice(const std::vector<at::Tensor>& wholes, const std::vector<at::Tensor>& parts,
                       const std::vector<Contribution>& contributions, int rank, int ranks) {
  BlockRows rows(static_cast<std::size_t>(ranks));
  for (std::size_t other = 0; other < rows.size(); ++other) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::byte* const inWhole = static_cast<std::byte*>(wholes[i].data_ptr()) + other * parts[i].nbytes();
      std::byte* const own = static_cast<int>(other) == rank ? static_cast<std::byte*>(parts[i].data_ptr()) : nullptr;
      Block block = bytesBlock(parts[i]);
      if (!contributions.empty()) {
        block.elements = ownElements(parts[i]);
        block.reduction = contributions[i].reduction;
      }
      block.from = contributions.empty() ? own : inWhole;
      block.to = contributions.empty() ? inWhole : own;
      rows[other].push_back(block);
    }
  }
  return rows;
}

Contribution contributionOf(const char* call, const c10d::ReduceOp& op, TorchDType dtype, int ranks, bool onDevice) {
  const DType own = ownDType(call, dtype, onDevice);
  const NamedOp* operation = find(op);
  check(operation != std::end(kOperations), ErrorKind::Usage, call, " with operation number ", static_cast<int>(op.op_),
        ", which torch.distributed.ReduceOp does not define: take one of those that it does");
  const char* reason = objection(*operation, dtype, own);
  check(reason == nullptr, ErrorKind::Usage, call, " with ", operation->name, " is not defined for tensors of ", dtype,
        ": ", reason);
  Contribution contribution{.reduction = {.dtype = own, .op = operation->op}};
  if (operation->torch == TorchOp::PREMUL_SUM) contribution.scale = factorOf(call, op);
  if (operation->torch == TorchOp::AVG) {
    if (isFloat(own)) {
      contribution.scale = 1.0 / ranks;
    } else {
      contribution.reduction.divisor = ranks;
    }
  }
  return contribution;
}

double scaleOf(const std::vector<Contribution>& contributions) {
  const auto scaled = std::ranges::find_if(contributions, [](const auto& one) { return isFloat(one.reduction.dtype); });
  return scaled == contributions.end() ? 1.0 : scaled->scale;
}

void contributeAlone(void* data, std::uint64_t elements, const Contribution& contribution) {
  const Input input{data, contribution.scale};
  const bool normalizes = contribution.reduction.dtype == DType::Bool;  // results are 0 or 1, inputs any byte
  if (input.scale != 1.0 || normalizes) reduce(contribution.reduction, data, {&input, 1}, elements);
}

}  // namespace fairring
