// The work of one device thread in a reduction. For the CUDA kernels and for the tests, which run all threads of a
// launch one after the other on the processor. In a namespace per instruction set, as elements.h says.
//
// The inputs are read once, in order, into registers, two to eight vectors of each at a time. With all resident threads
// of a device this is enough in flight to fill its memory bandwidth. A thread reads each place before it writes it, and
// no other thread reads it, so the output may be one of the inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/anywhere.h"
#include "kernels/elements.h"
#include "kernels/operations.h"
#include "kernels/vector_body.h"

namespace fairring {

constexpr std::size_t kMostDeviceInputs = 128;  // the most that fit into a kernel's parameters: 4 KiB

struct DeviceArguments {
  void* out = nullptr;
  VectorBody body;
  std::int32_t divisor = 1;
  std::int32_t inputCount = 0;
  Input inputs[kMostDeviceInputs] = {};
};
static_assert(sizeof(DeviceArguments) <= 4096 && std::is_trivially_copyable_v<DeviceArguments>);

namespace FAIRRING_ISA {

// An integer that wraps around in sums, held without its sign.
template <class T>
struct Wrapping {
  using Element = T;
  using Wide = std::make_unsigned_t<T>;
  FAIRRING_ANYWHERE static Wide widen(Element element) { return static_cast<Wide>(element); }
  FAIRRING_ANYWHERE static Element narrow(Wide wide) { return static_cast<Element>(wide); }
};

template <class T>
FAIRRING_ANYWHERE T quotient(T dividend, std::int32_t divisor) {  // toward zero; the divisor is positive
  if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(dividend / divisor);
  } else {
    return static_cast<T>(dividend / static_cast<std::uint32_t>(divisor));
  }
}

struct [[gnu::may_alias]] alignas(kVectorBytes) Words {  // a vector as it is loaded and stored
  std::uint32_t words[4];
};

template <class Type, class Operation>
class DeviceThread {
 public:
  FAIRRING_ANYWHERE DeviceThread(const DeviceArguments& arguments, std::uint64_t thread, std::uint64_t threads)
      : arguments_(arguments), thread_(thread), threads_(threads) {}

  FAIRRING_ANYWHERE void run() const {
    const VectorBody& body = arguments_.body;
    std::uint64_t v = thread_;
    for (; v + (kAtOnce - 1) * threads_ < body.vectors; v += kAtOnce * threads_) reduceVectors<kAtOnce>(v);
    for (; v < body.vectors; v += threads_) reduceVectors<1>(v);
    for (std::uint64_t i = thread_; i < body.loose(); i += threads_) reduceElement(body.placeOfLoose(i));
  }

 private:
  using Element = Type::Element;
  using Wide = Type::Wide;
  static constexpr int kPerVector = kVectorBytes / sizeof(Element);
  static constexpr bool kScales = std::is_floating_point_v<Wide> && std::is_same_v<Operation, Add>;
  static constexpr bool kDivides = std::is_integral_v<Element> && std::is_same_v<Operation, Add>;
  // Vectors of each input: as many as fit into 32 registers.
  static constexpr int kRegisters = kPerVector * (sizeof(Wide) == 8 ? 2 : 1);
  static constexpr int kAtOnce = kRegisters >= 32 ? 1 : 32 / kRegisters;

  union Vector {
    Words words;
    Element elements[kPerVector];
  };

  FAIRRING_ANYWHERE Wide take(Element element, [[maybe_unused]] const Input& input) const {
    if constexpr (kScales) return Type::widen(element) * static_cast<Wide>(input.scale);
    return Type::widen(element);
  }

  FAIRRING_ANYWHERE Element finish(Wide wide) const {
    Element element = Type::narrow(wide);
    if constexpr (kDivides) {
      if (arguments_.divisor != 1) element = quotient(element, arguments_.divisor);
    }
    return element;
  }

  FAIRRING_ANYWHERE void reduceElement(std::uint64_t i) const {
    const auto input = [&](int k) {
      return take(static_cast<const Element*>(arguments_.inputs[k].data)[i], arguments_.inputs[k]);
    };
    Wide held = input(0);
    for (int k = 1; k < arguments_.inputCount; ++k) held = Operation{}(held, input(k));
    static_cast<Element*>(arguments_.out)[i] = finish(held);
  }

  // The vectors v, v + threads, and so on: neighbouring threads take neighbouring ones.
  template <int Count>
  FAIRRING_ANYWHERE void reduceVectors(std::uint64_t v) const {
    Wide held[Count][kPerVector];
    Vector loaded[Count];
    load(0, v, loaded);
    FAIRRING_UNROLL
    for (int n = 0; n < Count; ++n) {
      FAIRRING_UNROLL
      for (int e = 0; e < kPerVector; ++e) held[n][e] = take(loaded[n].elements[e], arguments_.inputs[0]);
    }
    for (int k = 1; k < arguments_.inputCount; ++k) {
      load(k, v, loaded);
      FAIRRING_UNROLL
      for (int n = 0; n < Count; ++n) {
        FAIRRING_UNROLL
        for (int e = 0; e < kPerVector; ++e) {
          held[n][e] = Operation{}(held[n][e], take(loaded[n].elements[e], arguments_.inputs[k]));
        }
      }
    }
    store(v, held);
  }

  template <int Count>
  FAIRRING_ANYWHERE void load(int input, std::uint64_t v, Vector (&to)[Count]) const {
    const auto* from = static_cast<const Element*>(arguments_.inputs[input].data) + arguments_.body.head;
    FAIRRING_UNROLL
    for (int n = 0; n < Count; ++n) to[n].words = reinterpret_cast<const Words*>(from)[v + n * threads_];
  }

  template <int Count>
  FAIRRING_ANYWHERE void store(std::uint64_t v, const Wide (&held)[Count][kPerVector]) const {
    auto* to = reinterpret_cast<Words*>(static_cast<Element*>(arguments_.out) + arguments_.body.head);
    FAIRRING_UNROLL
    for (int n = 0; n < Count; ++n) {
      Vector vector;
      FAIRRING_UNROLL
      for (int e = 0; e < kPerVector; ++e) vector.elements[e] = finish(held[n][e]);
      to[v + n * threads_] = vector.words;
    }
  }

  const DeviceArguments& arguments_;
  const std::uint64_t thread_;
  const std::uint64_t threads_;
};

}  // namespace FAIRRING_ISA
}  // namespace fairring
