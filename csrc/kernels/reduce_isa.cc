// The reducing loops for one instruction set, FAIRRING_ISA: the build compiles this file once for each.
//
// Elements are processed in blocks that stay in the first cache while they are reduced: the inputs are read once, in
// order, and the output is written after all inputs of its block were read, so it may be one of them.
// If the sign makes no difference to the bits (sums, products, bit operations), one loop serves several dtypes.
#include "kernels/elements.h"
#include "kernels/loops.h"
#include "kernels/operations.h"

#define FAIRRING_ENTRY_OF(isa) FAIRRING_ENTRY_NAME(isa)
#define FAIRRING_ENTRY_NAME(isa) reduceWith_##isa

namespace fairring {
namespace FAIRRING_ISA {

constexpr std::size_t kBlockBytes = 4096;  // of elements as they are held

// Calls step(lanes, i) for as many whole vectors as there are, then for the rest, one by one.
template <class Type, class Step>
void each(std::size_t count, Step step) {
  using Vector = decltype(vectorOf(Type{}));
  std::size_t i = 0;
  for (; i + Vector::kCount <= count; i += Vector::kCount) step(Vector{}, i);
  if constexpr (Vector::kCount > 1) {
    for (; i < count; ++i) step(Lanes<Type>{}, i);
  }
}

// An input from that element on.
template <class Type, class Scale>
class Source {
 public:
  Source(const Input& input, std::size_t at)
      : from_(static_cast<const Type::Element*>(input.data) + at), scale_(input.scale) {}

  template <class Vector>
  auto read(Vector lanes, std::size_t i) const {
    return scale_(lanes.load(from_ + i));
  }

 private:
  const Type::Element* from_;
  Scale scale_;
};

template <class Type, class Operation, class Scale>
class Block {
 public:
  using From = Source<Type, Scale>;
  static constexpr std::size_t kMost = kBlockBytes / sizeof(typename Type::Wide);

  explicit Block(std::size_t count) : count_(count) {}

  void begin(From in) {
    each<Type>(count_, [&](auto lanes, std::size_t i) { lanes.put(held_ + i, in.read(lanes, i)); });
  }

  void begin(From a, From b) {
    each<Type>(count_, [&](auto lanes, std::size_t i) {
      lanes.put(held_ + i, Operation{}(a.read(lanes, i), b.read(lanes, i)));
    });
  }

  void take(From in) {
    each<Type>(count_, [&](auto lanes, std::size_t i) {
      lanes.put(held_ + i, Operation{}(lanes.get(held_ + i), in.read(lanes, i)));
    });
  }

  void finish(Type::Element* out) {
    each<Type>(count_, [&](auto lanes, std::size_t i) { lanes.store(out + i, lanes.get(held_ + i)); });
  }

 private:
  alignas(64) Type::Wide held_[kMost];
  const std::size_t count_;
};

template <class Type, class Operation, class Scale = AsIs>
void reduceBlocks(const LoopArguments& arguments) {
  using Work = Block<Type, Operation, Scale>;
  for (std::size_t at = 0; at < arguments.elements; at += Work::kMost) {
    const std::size_t left = arguments.elements - at;
    Work block(left < Work::kMost ? left : Work::kMost);
    const auto input = [&](std::size_t k) { return typename Work::From(arguments.inputs[k], at); };
    if (arguments.inputCount == 1) {
      block.begin(input(0));
    } else {
      block.begin(input(0), input(1));
    }
    for (std::size_t k = 2; k < arguments.inputCount; ++k) block.take(input(k));
    block.finish(static_cast<Type::Element*>(arguments.out) + at);
  }
}

template <class Type>
void sumFloats(const LoopArguments& arguments) {
  for (std::size_t k = 0; k < arguments.inputCount; ++k) {
    if (arguments.inputs[k].scale != 1.0) return reduceBlocks<Type, Add, Scaled<typename Type::Wide>>(arguments);
  }
  reduceBlocks<Type, Add>(arguments);
}

// Floats divide in vectors, and to the same integers: if the dividend has fewer bits than the fraction, a quotient that
// is no integer is further from the next integer than the rounding error.
template <class T>
void divide(const LoopArguments& arguments) {
  using Float = std::conditional_t<sizeof(T) == 4, double, float>;
  using Dividend = std::conditional_t<sizeof(T) == 8, T, Float>;
  if (arguments.reduction.divisor == 1) return;
  const auto divisor = static_cast<Dividend>(arguments.reduction.divisor);
  T* out = static_cast<T*>(arguments.out);
  const std::size_t elements = arguments.elements;  // a copy: bytes that are written might alias the arguments
  for (std::size_t i = 0; i < elements; ++i) {
    out[i] = static_cast<T>(static_cast<Dividend>(out[i]) / divisor);
  }
}

template <class T>
void sumIntegers(const LoopArguments& arguments) {
  reduceBlocks<Plain<std::make_unsigned_t<T>>, Add>(arguments);
  divide<T>(arguments);
}

void sum(const LoopArguments& arguments) {
  switch (arguments.reduction.dtype) {
    case DType::Float32: return sumFloats<Plain<float>>(arguments);
    case DType::Float64: return sumFloats<Plain<double>>(arguments);
    case DType::BFloat16: return sumFloats<Brain>(arguments);
    case DType::Float16: return sumFloats<Half>(arguments);
    case DType::Int8: return sumIntegers<std::int8_t>(arguments);
    case DType::Int16: return sumIntegers<std::int16_t>(arguments);
    case DType::Int32: return sumIntegers<std::int32_t>(arguments);
    case DType::Int64: return sumIntegers<std::int64_t>(arguments);
    case DType::UInt8: return sumIntegers<std::uint8_t>(arguments);
    case DType::UInt16: return sumIntegers<std::uint16_t>(arguments);
    case DType::UInt32: return sumIntegers<std::uint32_t>(arguments);
    case DType::UInt64: return sumIntegers<std::uint64_t>(arguments);
    case DType::Bool: return reduceBlocks<Logical, Or>(arguments);
    case DType::Float8E4M3: return sumFloats<E4M3>(arguments);
    case DType::Float8E5M2: return sumFloats<E5M2>(arguments);
  }
}

void multiply(const LoopArguments& arguments) {
  switch (arguments.reduction.dtype) {
    case DType::Float32: return reduceBlocks<Plain<float>, Multiply>(arguments);
    case DType::Float64: return reduceBlocks<Plain<double>, Multiply>(arguments);
    case DType::BFloat16: return reduceBlocks<Brain, Multiply>(arguments);
    case DType::Float16: return reduceBlocks<Half, Multiply>(arguments);
    case DType::Int8:
    case DType::UInt8: return reduceBlocks<Plain<std::uint8_t>, Multiply>(arguments);
    case DType::Int16:
    case DType::UInt16: return reduceBlocks<Plain<std::uint16_t>, Multiply>(arguments);
    case DType::Int32:
    case DType::UInt32: return reduceBlocks<Plain<std::uint32_t>, Multiply>(arguments);
    case DType::Int64:
    case DType::UInt64: return reduceBlocks<Plain<std::uint64_t>, Multiply>(arguments);
    case DType::Bool: return reduceBlocks<Logical, And>(arguments);
    case DType::Float8E4M3: return reduceBlocks<E4M3, Multiply>(arguments);
    case DType::Float8E5M2: return reduceBlocks<E5M2, Multiply>(arguments);
  }
}

// End: the end of the order to which NaNs go, so that they win.
template <class Operation, int End>
void choose(const LoopArguments& arguments) {
  switch (arguments.reduction.dtype) {
    case DType::Float32: return reduceBlocks<Ranked<std::int32_t, End * 0x7fffff>, Operation>(arguments);
    case DType::Float64: return reduceBlocks<Ranked<std::int64_t, End * 0xfffffffffffff>, Operation>(arguments);
    case DType::BFloat16: return reduceBlocks<Ranked<std::int16_t, End * 0x7f>, Operation>(arguments);
    case DType::Float16: return reduceBlocks<Ranked<std::int16_t, End * 0x3ff>, Operation>(arguments);
    case DType::Int8: return reduceBlocks<Plain<std::int8_t>, Operation>(arguments);
    case DType::Int16: return reduceBlocks<Plain<std::int16_t>, Operation>(arguments);
    case DType::Int32: return reduceBlocks<Plain<std::int32_t>, Operation>(arguments);
    case DType::Int64: return reduceBlocks<Plain<std::int64_t>, Operation>(arguments);
    case DType::UInt8: return reduceBlocks<Plain<std::uint8_t>, Operation>(arguments);
    case DType::UInt16: return reduceBlocks<Plain<std::uint16_t>, Operation>(arguments);
    case DType::UInt32: return reduceBlocks<Plain<std::uint32_t>, Operation>(arguments);
    case DType::UInt64: return reduceBlocks<Plain<std::uint64_t>, Operation>(arguments);
    case DType::Bool: return reduceBlocks<Logical, Operation>(arguments);
    case DType::Float8E4M3: return reduceBlocks<Ranked<std::int8_t, End>, Operation>(arguments);
    case DType::Float8E5M2: return reduceBlocks<Ranked<std::int8_t, End * 3>, Operation>(arguments);
  }
}

template <class Operation>
void combineBits(LoopArguments arguments) {
  if (arguments.reduction.dtype == DType::Bool) return reduceBlocks<Logical, Operation>(arguments);
  arguments.elements *= bytesOf(arguments.reduction.dtype);
  reduceBlocks<Plain<std::uint8_t>, Operation>(arguments);
}

}  // namespace FAIRRING_ISA

void FAIRRING_ENTRY_OF(FAIRRING_ISA)(const LoopArguments& arguments) {
  using namespace FAIRRING_ISA;
  switch (arguments.reduction.op) {
    case Op::Sum: return sum(arguments);
    case Op::Product: return multiply(arguments);
    case Op::Min: return choose<Least, 1>(arguments);
    case Op::Max: return choose<Greatest, -1>(arguments);
    case Op::BitAnd: return combineBits<And>(arguments);
    case Op::BitOr: return combineBits<Or>(arguments);
    case Op::BitXor: return combineBits<Xor>(arguments);
  }
}

}  // namespace fairring
