// The work of one device thread in a sum. For the CUDA kernels and for the tests, which run all threads of a launch one
// after the other on the processor. In a namespace per instruction set, as elements.h says.
//
// The inputs are read once, in order, into registers, two to eight vectors of each at a time. With all resident threads
// of a device this is enough in flight to fill its memory bandwidth. A thread reads each place before it writes it, and
// no other thread reads it, so the output may be one of the inputs.
#pragma once

#include <cstdint>

#include "kernels/device_arguments.h"
#include "kernels/elements.h"

// Before a loop of few rounds, whose arrays are then registers of a device.
#if defined(__CUDA_ARCH__)
#define FAIRRING_UNROLL _Pragma("unroll")
#else
#define FAIRRING_UNROLL
#endif

namespace fairring::FAIRRING_ISA {

struct [[gnu::may_alias]] alignas(kVectorBytes) Words {  // a vector as it is loaded and stored
  std::uint32_t words[4];
};

template <class Type>
class DeviceThread {
 public:
  DeviceThread(const SumArguments& arguments, std::uint64_t thread, std::uint64_t threads)
      : arguments_(arguments), thread_(thread), threads_(threads) {}

  void run() const {
    const VectorBody& body = arguments_.body;
    std::uint64_t v = thread_;
    for (; v + (kAtOnce - 1) * threads_ < body.vectors; v += kAtOnce * threads_) sumVectors<kAtOnce>(v);
    for (; v < body.vectors; v += threads_) sumVectors<1>(v);
    for (std::uint64_t i = thread_; i < body.loose(); i += threads_) sumElement(body.placeOfLoose(i));
  }

 private:
  using Element = Type::Element;
  using Wide = Type::Wide;
  static constexpr int kPerVector = kVectorBytes / sizeof(Element);
  // Vectors of each input: as many as fit into 32 registers.
  static constexpr int kRegisters = kPerVector * (sizeof(Wide) == 8 ? 2 : 1);
  static constexpr int kAtOnce = kRegisters >= 32 ? 1 : 32 / kRegisters;

  union Vector {
    Words words;
    Element elements[kPerVector];
  };

  static Wide take(Element element, const Input& input) {
    return Type::widen(element) * static_cast<Wide>(input.scale);
  }

  void sumElement(std::uint64_t i) const {
    const auto input = [&](int k) {
      return take(static_cast<const Element*>(arguments_.inputs[k].data)[i], arguments_.inputs[k]);
    };
    Wide held = input(0);
    for (int k = 1; k < arguments_.inputCount; ++k) held += input(k);
    static_cast<Element*>(arguments_.out)[i] = Type::narrow(held);
  }

  // The vectors v, v + threads, and so on: neighbouring threads take neighbouring ones.
  template <int Count>
  void sumVectors(std::uint64_t v) const {
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
        for (int e = 0; e < kPerVector; ++e) held[n][e] += take(loaded[n].elements[e], arguments_.inputs[k]);
      }
    }
    store(v, held);
  }

  template <int Count>
  void load(int input, std::uint64_t v, Vector (&to)[Count]) const {
    const auto* from = static_cast<const Element*>(arguments_.inputs[input].data) + arguments_.body.head;
    FAIRRING_UNROLL
    for (int n = 0; n < Count; ++n) to[n].words = reinterpret_cast<const Words*>(from)[v + n * threads_];
  }

  template <int Count>
  void store(std::uint64_t v, const Wide (&held)[Count][kPerVector]) const {
    auto* to = reinterpret_cast<Words*>(static_cast<Element*>(arguments_.out) + arguments_.body.head);
    FAIRRING_UNROLL
    for (int n = 0; n < Count; ++n) {
      Vector vector;
      FAIRRING_UNROLL
      for (int e = 0; e < kPerVector; ++e) vector.elements[e] = Type::narrow(held[n][e]);
      to[v + n * threads_] = vector.words;
    }
  }

  const SumArguments& arguments_;
  const std::uint64_t thread_;
  const std::uint64_t threads_;
};

}  // namespace fairring::FAIRRING_ISA
