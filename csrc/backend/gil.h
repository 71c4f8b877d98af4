// Letting go of Python's global lock where our code may wait: for another thread that needs it, the wait would never
// end. Calls from Python bindings come here without the lock, destructors come with it.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>

namespace fairring {

// Without the lock for its lifetime, on whatever thread and whether Python still runs or not.
class GilReleased {
 public:
  GilReleased() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

}  // namespace fairring
