// Releases the GIL where our code may wait: if the wait is for another thread that needs the GIL, it would never end.
// Calls from Python bindings come here without the GIL, destructors come with it.
#pragma once

#include <Python.h>

namespace fairring {

// Gives up the GIL for its lifetime, on any thread, whether or not Python still runs.
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
