#include "kernels/quantized.h"

#include "kernels/control.h"
#include "kernels/loops.h"

namespace fairring {

namespace {

const Isa& best() {
  static const Isa isa = runnableIsas().back();
  return isa;
}

}  // namespace

std::size_t quantizedBytes(Quantization kind, std::size_t elements) {
  const auto bytes = [kind](std::size_t integers) {
    return kind == Quantization::Int8 ? integers : (integers + 1) / 2;
  };
  const std::size_t rest = elements % kQuantizedBlock;
  const std::size_t whole = elements / kQuantizedBlock * (sizeof(std::uint16_t) + bytes(kQuantizedBlock));
  return whole + (rest > 0 ? sizeof(std::uint16_t) : 0) + (rest > 1 ? bytes(rest) : 0);
}

void quantize(Quantization kind, const float* values, std::byte* encoded, float* lost, std::size_t elements) {
  const StandardFloatingPoint standard;
  best().quantize(kind, values, encoded, lost, elements);
}

void dequantize(Quantization kind, const std::byte* encoded, float* values, std::size_t elements) {
  const StandardFloatingPoint standard;
  best().dequantize(kind, encoded, values, elements);
}

}  // namespace fairring
