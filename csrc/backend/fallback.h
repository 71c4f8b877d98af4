// The calls that Fairring does not carry out itself: those on CUDA tensors, which are stock NCCL's if the group has
// one. FairringBackend has c10d's overloads, and hands such calls on to delegate().
//
// NCCL is made in Python, as torch itself does, so nothing of it is compiled in; the first call that needs it makes it.
// The user gets its Work (nccl_work.h), because it is bound to the caller's stream. Any thread; NCCL's calls keep the
// order in which their caller makes them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/coalescing.h"
#include "backend/completion.h"
#include "backend/delegation.h"
#include "backend/hooks.h"
#include "backend/meeting.h"
#include "backend/memory_in_flight.h"
#include "backend/operation.h"
#include "backend/signature.h"
#include "backend/stock_nccl.h"
#include "backend/tracked_work.h"

namespace fairring {

class Fallback : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using Sizes = std::vector<std::int64_t>;
  // They may outlive the backend.
  struct Parts {
    std::shared_ptr<Meeting> meeting;  // null for the members of reconfigure(), which have met
    std::shared_ptr<StockNccl> nccl;
    std::shared_ptr<Hooks> hooks;

    // As FailureNotice::OnFailed: the group has failed. Ends what waits for its ranks, and NCCL's calls.
    void breakOff(Completion& completion, bool endsProcess) const;
  };

  Fallback(int rank, int size, std::chrono::milliseconds timeout, Parts parts, bool standsForGloo,
           const Delegation& delegation);

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  void setTimeout(std::chrono::milliseconds timeout) override;
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  std::uint64_t getSequenceNumberForGroup() override { return calls_.load(); }
  void setSequenceNumberForGroup() override {}  // it begins at 0 on every rank

  // These are NCCL's for CUDA tensors; the first of them makes NCCL's group, as a first call does. Others have none.
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::shared_ptr<c10::Allocator> getMemAllocator() override;

#ifdef FAIRRING_TORCH_2_15
  bool supportsAbortHooks() const override { return true; }
  void registerAbortHook(std::int64_t id, AbortHook hook) override;
  void unregisterAbortHook(std::int64_t id) override;
  bool supportsCompletionHooks() const override { return true; }
  void registerCompletionHook(std::int64_t id, CompletionHook hook) override;
  void unregisterCompletionHook(std::int64_t id) override;
#endif

  void abort() override;     // ends NCCL's calls
  void shutdown() override;  // and NCCL; calls that come later are refused

 protected:
  // Returns where all ranks have met, once they have; throws if that takes too long.
  virtual StockNccl::Met meet() = 0;
  virtual Error firstError() const = 0;           // none: the group has not failed
  bool isForked() const;                          // whether this is another process than the one that made the group
  std::uint64_t countCall() { return ++calls_; }  // the new call's number: 1, 2, ...
  void refuseIfEnded() const;                     // or in a forked child
  void refuseUnlessUsable() const;                // the same, or while there are no members
  void refuseIfFailed() const;                    // or once the group has failed
  // Whether the group has members: not before the first reconfiguration, nor after an abort of such a group.
  void setConfigured(bool isConfigured) { isConfigured_ = isConfigured; }
  bool isConfigured() const { return isConfigured_; }
  const std::shared_ptr<Hooks>& hooks() const { return hooks_; }
  void restartCounting() { calls_ = 0; }
  std::uint64_t calls() const { return calls_; }
  std::chrono::milliseconds limitOf(std::chrono::milliseconds callsOwn) const;
  WorkLabel labelOf(const Signature& signature) const;  // of the call that was counted last
  Coalescing& coalescing() { return coalescing_; }
  const Delegation& delegation() const { return delegation_; }
  MemoryInFlight& inFlight() { return inFlight_; }
  using BackendPtr = StockNccl::BackendPtr;
  std::shared_ptr<StockNccl> stock() const;  // another one once the group has other members
  BackendPtr nccl(StockNccl& stock, StockNccl::Use use);
  // Takes that of the group's next members; returns that of the last ones.
  std::shared_ptr<StockNccl> exchangeStock(std::shared_ptr<StockNccl> next);
  // A call by NCCL: this one of its methods, with these arguments. Throws ValueError if `tensors`, which the operation
  // is about, are not on a CUDA device.
  template <auto Method, class... Arguments>
  WorkPtr delegate(const Operation& operation, const Tensors& tensors, Arguments&... arguments) {
    return delegate(operation, tensors, inFlight_.tensors(arguments...),
                    [&](Backend& stock) { return (stock.*Method)(arguments...); });
  }
  WorkPtr delegateBarrier(const c10d::BarrierOptions& options);

 private:
  using Begin = std::function<WorkPtr(c10d::Backend&)>;

  // touched: all tensors of the call, if its memory matters.
  WorkPtr delegate(const Operation& operation, const Tensors& tensors, const Tensors& touched, const Begin& begin);
  WorkPtr delegate(const StockNccl::Use& use, const std::function<WorkPtr(const BackendPtr&)>& begin);
  bool forgetBroken(const StockNccl& stock);
  WorkPtr beginInOrder(const BackendPtr& stock, const c10::Device& device, const Tensors& touched, const Begin& begin);

  const pid_t maker_;
  const std::shared_ptr<Meeting> meeting_;
  const std::shared_ptr<Hooks> hooks_;
  mutable std::mutex stockMutex_;  // guards the next; never held while anything waits
  std::shared_ptr<StockNccl> stock_;
  std::atomic<bool> hasEnded_{false};
  const bool standsForGloo_;
  const Delegation delegation_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<bool> isConfigured_{true};
  Coalescing coalescing_;
  MemoryInFlight inFlight_;
};

}  // namespace fairring
