// The operations on two elements as they are held (elements.h), or on two vectors of them. Integers wrap around.
// Only for *_isa.cc and the CUDA kernels, in a namespace per instruction set, as elements.h says.
#pragma once

#include <type_traits>

namespace fairring::FAIRRING_ISA {

struct Add {
  template <class Wide>
  Wide operator()(Wide a, Wide b) const {
    return static_cast<Wide>(a + b);
  }
};

struct Multiply {
  template <class Wide>
  Wide operator()(Wide a, Wide b) const {
    if constexpr (std::is_integral_v<Wide>) {
      return static_cast<Wide>(1u * a * b);  // in 32 bits or more and unsigned: two of 16 bits would overflow an int
    } else {
      return a * b;
    }
  }
};

struct Least {
  template <class Wide>
  Wide operator()(Wide a, Wide b) const {
    return b < a ? b : a;
  }
};

struct Greatest {
  template <class Wide>
  Wide operator()(Wide a, Wide b) const {
    return a < b ? b : a;
  }
};

struct And {
  template <class Wide>
  Wide operator()(Wide a, Wide b) const {
    return a & b;
  }
};

struct Or {
  template <class Wide>
  Wide operator()(Wide a, Wide b) const {
    return a | b;
  }
};

struct Xor {
  template <class Wide>
  Wide operator()(Wide a, Wide b) const {
    return a ^ b;
  }
};

// How an input is prepared before it takes part.
struct AsIs {
  explicit AsIs(double) {}

  template <class Wide>
  Wide operator()(Wide value) const {
    return value;
  }
};

template <class Factor>
class Scaled {
 public:
  explicit Scaled(double factor) : factor_(static_cast<Factor>(factor)) {}

  template <class Wide>
  Wide operator()(Wide value) const {
    return value * factor_;
  }

 private:
  Factor factor_;
};

}  // namespace fairring::FAIRRING_ISA
