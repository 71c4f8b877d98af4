// Letting go of Python's global lock where our code may wait: for another thread that needs it, the wait would never
// end. Calls from Python bindings come here without the lock, destructors come with it.
#pragma once

#include <Python.h>

namespace fairring {

// Without the lock for its lifetime, on whatever thread and whether Python still runs or not.
class GilReleased {
 public:
  GilReleased() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) saved_ = PyEval_SaveThread();
  }
  ~GilReleased() {
    if (saved_ != nullptr) PyEval_RestoreThread(saved_);
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* saved_ = nullptr;
};

}  // namespace fairring
