// A failure for want of memory, of a device or of the host: the caller may do without.
#pragma once

#include "base/error.h"

namespace fairring {

class OutOfMemory : public Failure {
 public:
  using Failure::Failure;
};

}  // namespace fairring
