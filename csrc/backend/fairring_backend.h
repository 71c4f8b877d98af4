// The process group backend "fairring": calls that reduce dense CPU tensors are ours (delegation.h says which; they are
// in reducing.cc), everything else is the stock backends' (fallback.h).
//
// Called by torch on threads of the user's, mostly without Python's lock. Nothing here waits for the network but the
// first use of a group, shutdown() and the destructor. Calls of one group are numbered in the order they are made.
#pragma once

#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend/fallback.h"
#include "backend/membership.h"
#include "backend/reduction.h"
#include "backend/work.h"

namespace fairring {

class FairringBackend : public Fallback {
 public:
  // Makes the backend and remembers it for endAll(). Does not wait for other ranks.
  static c10::intrusive_ptr<c10d::Backend> make(const c10::intrusive_ptr<c10d::Store>& store, MembershipOptions options,
                                                std::chrono::milliseconds timeout, StockBackends::Make makeStock);
  // Ends all groups of the process that have not been destroyed, the newest first: at interpreter exit. A forked child
  // has none: those of its parent stay as they are there, for ever, and shutdown() and abort() do nothing.
  static void endAll();

  FairringBackend(std::shared_ptr<Membership> membership, int rank, int size, std::chrono::milliseconds timeout,
                  Parts parts);
  ~FairringBackend() override;

  const std::string getBackendName() const override { return "fairring"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;

  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 protected:
  std::int64_t meet() override;
  void openEngine(std::chrono::milliseconds timeout) override;

 private:
  struct ReducingCall {
    const Operation& operation;
    Common common;  // its tensors are what is reduced
    c10d::ReduceOp reduction;
    std::chrono::milliseconds timeout;
    bool waited;  // the caller waits for it at once
  };

  WorkPtr reduceInPlace(const Operation& operation, const Tensors& tensors, const c10d::AllreduceOptions& options);
  WorkPtr reduceScattered(const Operation& operation, const Tensors& outputs, const Tensors& inputs,
                          const c10d::ReduceScatterOptions& options);
  WorkPtr reduceAll(const ReducingCall& call, std::vector<Reduced> all, const Tensors& outputs);
  std::shared_ptr<Membership> membership() const;  // null once ended, and in a group of one rank

  mutable std::mutex mutex_;  // guards membership_; never held while anything waits
  std::shared_ptr<Membership> membership_;
};

}  // namespace fairring
