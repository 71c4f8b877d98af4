#include "kernels/reduce.h"

#include <cassert>

#include "kernels/control.h"
#include "kernels/loops.h"

namespace fairring {

std::size_t bytesOf(DType dtype) {
  switch (dtype) {
    case DType::Bool:
    case DType::Float8E4M3:
    case DType::Float8E5M2:
    case DType::Int8:
    case DType::UInt8: return 1;
    case DType::BFloat16:
    case DType::Float16:
    case DType::Int16:
    case DType::UInt16: return 2;
    case DType::Float32:
    case DType::Int32:
    case DType::UInt32: return 4;
    case DType::Float64:
    case DType::Int64:
    case DType::UInt64: return 8;
  }
  return 0;
}

const char* name(DType dtype) {
  switch (dtype) {
    case DType::Float32: return "Float32";
    case DType::Float64: return "Float64";
    case DType::BFloat16: return "BFloat16";
    case DType::Float16: return "Float16";
    case DType::Int8: return "Int8";
    case DType::Int16: return "Int16";
    case DType::Int32: return "Int32";
    case DType::Int64: return "Int64";
    case DType::UInt8: return "UInt8";
    case DType::UInt16: return "UInt16";
    case DType::UInt32: return "UInt32";
    case DType::UInt64: return "UInt64";
    case DType::Bool: return "Bool";
    case DType::Float8E4M3: return "Float8E4M3";
    case DType::Float8E5M2: return "Float8E5M2";
  }
  return "unknown";
}

bool isFloat(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::BFloat16 || dtype == DType::Float16 ||
         dtype == DType::Float8E4M3 || dtype == DType::Float8E5M2;
}

bool isDefined(Op op, DType dtype) {
  return !isFloat(dtype) || (op != Op::BitAnd && op != Op::BitOr && op != Op::BitXor);
}

std::vector<Isa> runnableIsas() {
  std::vector<Isa> isas{{"baseline", reduceWith_baseline, quantizeWith_baseline, dequantizeWith_baseline}};
#if defined(__x86_64__)
  // The features that x86-64-v3 and -v4 let the compiler use. The checks include that the system saves the registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("lzcnt") && __builtin_cpu_supports("movbe");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2) isas.push_back({"avx2", reduceWith_avx2, quantizeWith_avx2, dequantizeWith_avx2});
  if (avx512) isas.push_back({"avx512", reduceWith_avx512, quantizeWith_avx512, dequantizeWith_avx512});
#endif
  return isas;
}

void reduce(const Reduction& reduction, void* out, std::span<const Input> inputs, std::size_t elements) {
  assert(!inputs.empty() && isDefined(reduction.op, reduction.dtype) && reduction.divisor != 0);
  static const auto best = runnableIsas().back().reduce;
  const StandardFloatingPoint standard;
  best({reduction, out, inputs.data(), inputs.size(), elements});
}

const char* instructionSet() { return runnableIsas().back().name; }

}  // namespace fairring
