// A communicator of NCCL, in its non-blocking mode: no call waits for other ranks longer than the timeout says, and
// abort() ends whatever is under way.
//
// NCCL has no way to tell that something is through, so a thread that waits looks again and again: all the time at
// first, then a tenth of a millisecond apart; abort() wakes it. What is enqueued is enqueued by one thread at a time,
// in the same order on all ranks. abort() may come from any other thread, at any time. All of it throws Failure, and
// names the call, this rank, and what NCCL says.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/error.h"
#include "device/nccl.h"
#include "device/nccl_limits.h"
#include "device/nccl_patience.h"

namespace fairring {

// What a new one is made of: the ranks of a machine, counted within it.
struct NcclPlace {
  int rank = 0;
  int ranks = 1;
  int device = 0;
  std::string who;  // this rank, for errors: "rank 3, on CUDA device 1"
  NcclPatience patience;
  NcclLimits limits = {};
};

class NcclCommunicator {
 public:
  // A block of NCCL's can take a multiprocessor for itself and waits for its peers, so all blocks of a group's kernels
  // must have room at once (group/rank_facts.h). More than these would not make calls faster: rails take the time.
  static constexpr int kMostBlocks = 8;

  // The text of a new unique id, which one rank makes and all others are to be given.
  static std::string makeId();

  // All ranks of the communicator at once; waits for them.
  NcclCommunicator(NcclPlace place, const std::string& id);
  // A second one of the same ranks, with resources of its own. All ranks at once; waits for them.
  std::unique_ptr<NcclCommunicator> split();
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Calls NCCL, as one group, and returns when what it was asked for stands in its streams: then events may be
  // recorded behind it. `name`: what is called, for errors.
  using Calls = std::function<ncclResult_t(ncclComm_t)>;
  void enqueue(const char* name, const Calls& calls);

  void abort() noexcept;
  // All of one device. One after the other would hang where the first's kernels stand behind the second's: abort()
  // waits for those of its own communicator. In the same order each time.
  static void abortTogether(std::span<NcclCommunicator* const> communicators) noexcept;

 private:
  explicit NcclCommunicator(NcclPlace place) : place_(std::move(place)) {}
  using Lock = std::unique_lock<std::mutex>;
  ncclResult_t stateAfter(ncclResult_t returned) const;
  void settle(const char* name, ncclResult_t returned, Lock& lock);
  Error failure(const char* name, ncclResult_t result) const;
  ncclComm_t giveUp() noexcept;
  void abandon() noexcept;

  const NcclPlace place_;
  std::mutex mutex_;  // held during each call of NCCL, not between looks
  std::condition_variable aborting_;
  bool aborted_ = false;       // under the mutex, as the next
  ncclComm_t comm_ = nullptr;  // none once aborted
};

}  // namespace fairring
