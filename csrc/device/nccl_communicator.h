// A communicator of NCCL, in its blocking mode: a call puts its kernels into their streams on the caller's thread.
// Where NCCL connects ranks for it, which it does for each of its algorithms, the call waits for them, for as long as
// they take. abortTogether() ends that wait too: a caller that may not wait for ever has another thread call it.
//
// NCCL frees a communicator that is aborted, even if a thread is still in a call with it. So abortTogether() first lets
// NCCL set the flag that ends what waits, then it waits until that thread is out, and only then NCCL frees.
//
// join() and enqueue() are called by one thread at a time, in the same order on all ranks. abortTogether() may come
// from any other thread, at any time. All of it throws Failure, and names the call, this rank, and what NCCL says.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "base/error.h"
#include "device/nccl.h"
#include "device/nccl_limits.h"

namespace fairring {

// What a new one is made of: the ranks of a machine, counted within it.
struct NcclPlace {
  int rank = 0;
  int ranks = 1;
  int device = 0;
  std::string who;  // this rank, for errors: "rank 3, on CUDA device 1"
  NcclLimits limits = {};
};

class NcclCommunicator {
 public:
  // A block of NCCL's can take a multiprocessor for itself and waits for its peers, so all blocks of a group's kernels
  // must have room at once (group/rank_facts.h). More than these would not make calls faster: rails take the time.
  static constexpr int kMostBlocks = 8;

  // The text of a new unique id, which one rank makes and all others are to be given.
  static std::string makeId();

  explicit NcclCommunicator(NcclPlace place) : place_(std::move(place)) {}
  // All ranks at once, with the same id, before any other call; waits for them.
  void join(const std::string& id);
  // All that was enqueued has ended: NCCL would wait for it.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Calls NCCL, as one group, and returns when what it was asked for stands in its streams: then events may be
  // recorded behind it. `name`: what is called, for errors.
  using Calls = std::function<ncclResult_t(ncclComm_t)>;
  void enqueue(const char* name, const Calls& calls);

  // All of one device. One after the other would hang where the first's kernels stand behind the second's: NCCL waits
  // for those of a communicator before it frees it. In the same order each time.
  static void abortTogether(std::span<NcclCommunicator* const> communicators) noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void settle(const char* name, ncclResult_t returned);
  ncclResult_t stateAfter(ncclResult_t returned) const;
  Error failure(const char* name, ncclResult_t result) const;
  ncclComm_t giveUp() noexcept;

  const NcclPlace place_;
  std::mutex inside_;  // held while a thread calls NCCL with it, also while that waits for ranks; before the next
  std::mutex mutex_;   // guards the rest; never held while NCCL waits for ranks
  std::condition_variable aborting_;
  bool aborted_ = false;
  ncclComm_t comm_ = nullptr;  // none once aborted
};

}  // namespace fairring
