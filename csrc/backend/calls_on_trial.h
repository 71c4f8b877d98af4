// The calls of FAIRRING_CUDA=auto's trial: those of one size and dtype, of each kind, by either candidate. All ranks at
// once, on callers' threads, without the GIL.
//
// NCCL's calls are made on the program's own communicator, so every rank makes all of them, whatever becomes of ours: a
// rank that left one out would have its next call summed with another rank's trial. Once one of ours has failed here
// the trial's group is aborted, so that no rank waits for it, and ours are left out.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "backend/membership.h"
#include "backend/stock_nccl.h"
#include "device/trial_verdict.h"

namespace fairring {

// A call of NCCL's has thrown. It is no verdict: the program's own call would have met it, and other ranks wait in it.
struct NcclsFailure : std::exception {
  explicit NcclsFailure(std::exception_ptr thrown) : cause(std::move(thrown)) {}
  std::exception_ptr cause;
};

// Why this rank can't go on, in words, thrown or returned; empty: it can. Lets NcclsFailure through.
std::string reasonOf(const std::function<std::string()>& attempt);

class CallsOnTrial {
 public:
  static constexpr std::chrono::seconds kLimit{5};  // of one of ours
  static constexpr int kAtOnce = 3;
  static constexpr int kTurns = 3;
  // So many times the calls of check() are those of measure().
  static constexpr int kMeasuredToChecked = kTurns * (1 + kAtOnce);

  // Takes all memory that the calls need. trial: the group of Fairring's calls. nccl: one of stock's. end: a stream
  // that their results are joined to. bytes: of each call.
  CallsOnTrial(Membership& trial, const StockNccl& stock, c10d::Backend& nccl, const c10::Stream& end,
               std::uint64_t bytes, at::ScalarType dtype);

  // These and awaitCallers() throw NcclsFailure.
  // Whether the results of each kind are NCCL's, bit by bit. In words why not; empty: they are.
  std::string check(std::chrono::milliseconds limit);
  // Each kind in turns. In words what failed; empty: all is well.
  std::string measure(TrialFigures& figures);
  void awaitCallers() const;

 private:
  at::Tensor blocks(std::size_t index) const;
  c10::intrusive_ptr<c10d::Work> beginNccls(Pattern pattern, std::size_t index);
  void runNccls(Pattern pattern, std::size_t index);
  void tryOurs(const std::function<std::string()>& attempt);
  std::string runOurs(Pattern pattern, std::size_t first, int calls, std::chrono::milliseconds limit);
  Call callOf(Pattern pattern, std::size_t index) const;

  Membership& trial_;
  const StockNccl& stock_;
  c10d::Backend& nccl_;
  const c10::Stream end_;
  const c10::Stream callers_;
  const at::ScalarType dtype_;
  std::int64_t blockElements_ = 0;
  std::vector<at::Tensor> wholes_;
  std::vector<at::Tensor> parts_;
  at::Tensor values_;
  std::string reason_;  // why ours are left out
};

}  // namespace fairring
