// The calls of FAIRRING_CUDA=auto's trial: those of one size and dtype, of each kind, by either candidate. All ranks at
// once, on callers' threads, without the GIL.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/membership.h"
#include "device/trial_verdict.h"

namespace fairring {

class CallsOnTrial {
 public:
  static constexpr std::chrono::seconds kLimit{5};  // of one of ours
  static constexpr int kAtOnce = 3;
  static constexpr int kTurns = 3;
  // So many times the calls of check() are those of measure().
  static constexpr int kMeasuredToChecked = kTurns * (1 + kAtOnce);

  // trial: the group of Fairring's calls. end: a stream that their results are joined to. bytes: of each call.
  CallsOnTrial(Membership& trial, c10d::Backend& nccl, const c10::Stream& end, std::uint64_t bytes,
               at::ScalarType dtype);

  // Whether the results of each kind are NCCL's, bit by bit. In words why not; empty: they are.
  std::string check(std::chrono::milliseconds limit);
  // Each kind in turns. In words what failed; empty: all is well.
  std::string measure(TrialFigures& figures);
  void awaitCallers() const;

 private:
  at::Tensor blocks(std::size_t index) const;
  void runNccls(Pattern pattern, std::size_t index);
  std::string runOurs(Pattern pattern, std::size_t first, int calls, std::chrono::milliseconds limit);
  Call callOf(Pattern pattern, std::size_t index) const;

  Membership& trial_;
  c10d::Backend& nccl_;
  const c10::Stream end_;
  const c10::Stream callers_;
  const at::ScalarType dtype_;
  std::int64_t blockElements_ = 0;
  std::vector<at::Tensor> wholes_;
  std::vector<at::Tensor> parts_;
};

}  // namespace fairring
