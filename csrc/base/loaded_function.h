// A function of CUDA's runtime or of NCCL, found by its name in what torch has loaded. Nothing of either is linked, so
// one module serves every torch: with CUDA 12 or 13, or without. Those that we call are declared as pointers in
// cuda_runtime.h and device/nccl.h; they are filled when the module is loaded, after torch, and never change.
#pragma once

#include <string>

namespace fairring {

class LoadedFunction {
 public:
  explicit LoadedFunction(const char* name) noexcept;

  // Null if it is missing.
  template <class Function>
  operator Function*() const noexcept {
    return reinterpret_cast<Function*>(address_);
  }

  // Why these functions can't be called, in words; empty: all are there.
  static std::string whyMissing();

 private:
  void* address_;
};

}  // namespace fairring

// Defines the pointer that a header declares.
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name can't stand in any
#define FAIRRING_LOADED(name) decltype(name) name = LoadedFunction(#name)
