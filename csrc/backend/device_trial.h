// FAIRRING_CUDA=auto: a trial, before the first call on CUDA tensors that could be Fairring's, whether calls by
// Fairring work on this group's devices, and are faster there than NCCL's. If not, the answer says why; nothing is
// broken or left behind. All ranks at once, on callers' threads, without the GIL.
//
// The calls are made in a group of their own (Membership::trial()), so that one that fails is a verdict and no error of
// the real group. That group has an accelerator of its own, and as much staging and the same rails as the real one,
// which goes on with its accelerator if the verdict is good.
//
// Time. A rank waits for connections for a minute at most, for its own earlier work for half of the timeout and 20
// seconds at most, and for communicators until the timeout. The device has five seconds, as has each call of ours. A
// rank that is through waits for the others a minute longer than that. Sizes are measured in ascending order, each only
// where what the calls have taken so far foretells that all of it takes five seconds at most.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend/gate_trial.h"
#include "backend/membership.h"
#include "backend/stock_nccl.h"
#include "device/trial_verdict.h"

namespace fairring {

class DeviceTrial {
 public:
  // nccl: one of stock's. leastBytes: of the calls that are Fairring's at all.
  // areCallsOver: as GateTrial has it.
  DeviceTrial(Membership& real, const StockNccl& stock, c10d::Backend& nccl, const c10::Device& device,
              std::uint64_t leastBytes, std::chrono::milliseconds timeout, std::function<bool()> areCallsOver);

  // isLasting: another group of the same layout would come to the same verdict.
  TrialVerdict run(bool& isLasting);
  // The verdict of a trial in a group of the same layout, if this group's accelerator can be made.
  TrialVerdict heed(const TrialVerdict& earlier);

 private:
  TrialVerdict inGroup(const std::function<TrialVerdict(Membership&)>& verdictOf);
  std::string begin(Membership& trial);
  void endIfRankIsGone(const Membership& trial);
  Group& groupOf(Membership& trial) const;
  std::string firstReason(const std::string& question, const std::function<std::string()>& attempt);
  TrialVerdict measured(Membership& trial);

  Membership& real_;
  const StockNccl& stock_;
  c10d::Backend& nccl_;
  const c10::Device device_;
  const std::uint64_t leastBytes_;
  const std::chrono::milliseconds timeout_;  // of the program's call; 0: none
  const std::function<bool()> areCallsOver_;
  GateTrial gates_;
  bool hasFailed_ = false;  // a call, or for lack of memory, here: it may pass
};

}  // namespace fairring
