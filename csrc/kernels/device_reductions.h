// All reductions of a CUDA device, loaded when this is made. Any thread; immutable.
#pragma once

#include <map>
#include <utility>

#include "kernels/device_reduction.h"

namespace fairring {

class DeviceReductions {
 public:
  explicit DeviceReductions(int device);  // throws Failure

  const DeviceReduction& of(const Reduction& reduction) const;  // the operation must be defined

 private:
  std::map<std::pair<Op, DType>, DeviceReduction> loaded_;
};

}  // namespace fairring
