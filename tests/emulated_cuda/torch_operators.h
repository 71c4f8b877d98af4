// One call of an operator of torch on CUDA tensors, computed by the operator's CPU kernel. The caller's thread makes
// it; what is deferred runs on a queue's.
//
// Where meta kernels know the results' shapes it is a piece of the current stream's work, late as all of that, and its
// results come from torch's allocator. Where shapes follow from values, or tensors are sparse, the stream is waited for
// and the call computed at once.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

namespace emulated {

class OperatorCall {
 public:
  OperatorCall(const c10::OperatorHandle& operation, torch::jit::Stack* stack);
  void run();

 private:
  void findDevice();
  void findAliases();
  void takeNumbers();
  bool mayBeDeferred() const;
  bool makeResults();
  bool sumsInFp32() const;
  void defer();
  void computeNow();
  void finish();

  const c10::OperatorHandle& operation_;
  torch::jit::Stack* stack_;
  torch::jit::Stack arguments_;
  at::Device device_{at::kCUDA};
  bool isSparse_ = false;
  bool outIsEmpty_ = false;
  std::vector<std::optional<std::size_t>> aliases_;  // of each result: the argument that it is
  std::vector<c10::IValue> results_;                 // those that are none
};

}  // namespace emulated
