#include "device/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/cuda_error.h"
#include "base/cuda_stream.h"

namespace fairring {
namespace {

// Enqueueing takes a thread of NCCL's some tens of microseconds, and callers wait for it.
constexpr std::chrono::microseconds kLooksAtOnce{200};
constexpr std::chrono::microseconds kBetweenLooks{100};
constexpr std::chrono::seconds kFarewell{10};

// The place outlives it.
ncclConfig_t configOf(const NcclPlace& place) {
  ncclConfig_t config;
  const auto& [clusterSize, leastBlocks, mostBlocks, trafficClass, network] = place.limits;
  config.blocking = 0;
  config.cgaClusterSize = clusterSize.value_or(config.cgaClusterSize);
  config.minCTAs = leastBlocks.value_or(config.minCTAs);
  config.maxCTAs = std::max(std::min(mostBlocks.value_or(NcclCommunicator::kMostBlocks), NcclCommunicator::kMostBlocks),
                            leastBlocks.value_or(1));
  config.trafficClass = trafficClass.value_or(config.trafficClass);
  if (!network.empty()) config.netName = network.c_str();
  return config;
}

}  // namespace

std::string NcclCommunicator::makeId() {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  check(result == ncclSuccess, ErrorKind::System, "ncclGetUniqueId: ", ncclGetErrorString(result), ": ",
        ncclGetLastError(nullptr));
  return {id.internal, sizeof(id.internal)};
}

NcclCommunicator::NcclCommunicator(NcclPlace place, const std::string& id) : place_(std::move(place)) {
  ncclUniqueId unique;
  check(id.size() == sizeof(unique.internal), ErrorKind::Connection, place_.who, ": an id of NCCL of ", id.size(),
        " B came from the first rank of the machine, not of ", sizeof(unique.internal),
        ": all ranks need the same version of Fairring");
  std::memcpy(unique.internal, id.data(), id.size());
  const CurrentDevice current(place_.device);
  const CaptureUnheeded unheeded;
  ncclConfig_t config = configOf(place_);
  Lock lock(mutex_);
  try {
    settle("ncclCommInitRankConfig", ncclCommInitRankConfig(&comm_, place_.ranks, unique, place_.rank, &config), lock);
  } catch (const Failure&) {
    abandon();
    throw;
  }
}

std::unique_ptr<NcclCommunicator> NcclCommunicator::split() {
  std::unique_ptr<NcclCommunicator> other(new NcclCommunicator(place_));
  const CurrentDevice current(place_.device);
  const CaptureUnheeded unheeded;
  ncclConfig_t config = configOf(place_);
  try {
    // NCCL fills in the new one's pointer only when this one is through with the split, so that is waited for first.
    {
      Lock lock(mutex_);
      check(!aborted_, ErrorKind::Aborted, place_.who, ": ncclCommSplit of a communicator that was aborted");
      settle("ncclCommSplit", ncclCommSplit(comm_, 0, place_.rank, &other->comm_, &config), lock);
    }
    Lock lock(other->mutex_);
    other->settle("ncclCommSplit", ncclSuccess, lock);
  } catch (const Failure&) {
    abort();  // first: it waits for NCCL's thread, which writes to the other one at its end
    other->abort();
    throw;
  }
  return other;
}

NcclCommunicator::~NcclCommunicator() {
  Lock lock(mutex_);
  if (comm_ == nullptr) return;
  const CurrentDevice current(place_.device, std::nothrow);
  const CaptureUnheeded unheeded;
  // Finalizing waits for what is under way, so where that does not end it is given up.
  const auto deadline = std::chrono::steady_clock::now() + kFarewell;
  ncclResult_t result = stateAfter(ncclCommFinalize(comm_));
  while (result == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
    aborting_.wait_for(lock, kBetweenLooks, [this] { return aborted_; });
    if (comm_ == nullptr) return;  // abort() has taken it meanwhile
    result = stateAfter(ncclSuccess);
  }
  if (result == ncclSuccess) {
    ncclCommDestroy(comm_);
  } else {
    ncclCommAbort(comm_);
  }
}

void NcclCommunicator::enqueue(const char* name, const Calls& calls) {
  const CurrentDevice current(place_.device);
  const CaptureUnheeded unheeded;
  Lock lock(mutex_);
  check(!aborted_, ErrorKind::Aborted, place_.who, ": ", name, " on a communicator that was aborted");
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) throw Failure(failure("ncclGroupStart", result));
  const ncclResult_t asked = calls(comm_);
  result = ncclGroupEnd();  // also after an error: a group that has begun has to end
  if (asked != ncclSuccess && asked != ncclInProgress) result = asked;
  settle(name, result, lock);
}

// Some calls return ncclSuccess when they have only begun, so it is the communicator's state that counts.
ncclResult_t NcclCommunicator::stateAfter(ncclResult_t returned) const {
  if (returned != ncclSuccess && returned != ncclInProgress) return returned;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

void NcclCommunicator::settle(const char* name, ncclResult_t returned, Lock& lock) {
  const auto begin = std::chrono::steady_clock::now();
  ncclResult_t result = stateAfter(returned);
  while (result == ncclInProgress) {
    const auto taken = std::chrono::steady_clock::now() - begin;
    if (taken < kLooksAtOnce) {
      std::this_thread::yield();
    } else {
      aborting_.wait_for(lock, kBetweenLooks, [this] { return aborted_; });
    }
    check(!aborted_, ErrorKind::Aborted, place_.who, ": ", name, " was under way when the communicator was aborted");
    check(!place_.patience.hasEnded(), ErrorKind::Aborted, place_.who, ": ", name, " between the ", place_.ranks,
          " ranks of the machine was under way when the group failed");
    check(place_.patience.timeout.count() == 0 || taken < place_.patience.timeout, ErrorKind::Timeout, place_.who, ": ",
          name, " between the ", place_.ranks, " ranks of the machine was not through after ",
          place_.patience.timeout.count(),
          " ms: one of them has not come that far; look at their output, and at NCCL's with NCCL_DEBUG=INFO");
    result = stateAfter(ncclSuccess);
  }
  if (result != ncclSuccess) throw Failure(failure(name, result));
}

Error NcclCommunicator::failure(const char* name, ncclResult_t result) const {
  const char* last = ncclGetLastError(comm_);
  return makeError(result == ncclRemoteError ? ErrorKind::PeerDied : ErrorKind::System, place_.who, ": ", name,
                   " between the ", place_.ranks, " ranks of the machine: ", ncclGetErrorString(result),
                   last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : "",
                   "; NCCL_DEBUG=INFO says more");
}

void NcclCommunicator::abort() noexcept {
  const Lock lock(mutex_);
  abandon();
}

// Within a group of its calls, NCCL tells each communicator's kernels to end as it is named, and waits for them at the
// group's end.
void NcclCommunicator::abortTogether(std::span<NcclCommunicator* const> communicators) noexcept {
  if (communicators.empty()) return;
  std::vector<ncclComm_t> ended;
  for (NcclCommunicator* one : communicators) {
    const Lock lock(one->mutex_);
    ended.push_back(one->giveUp());
  }
  // This happens without the locks: NCCL waits here for kernels, and a thread in settle() is to see that it ends.
  const CurrentDevice current(communicators.front()->place_.device, std::nothrow);
  const CaptureUnheeded unheeded;
  ncclGroupStart();
  for (ncclComm_t one : ended) {
    if (one != nullptr) ncclCommAbort(one);
  }
  ncclGroupEnd();
}

// After this only the caller calls NCCL for this communicator; null: another caller has been given it.
ncclComm_t NcclCommunicator::giveUp() noexcept {
  aborted_ = true;
  aborting_.notify_all();
  return std::exchange(comm_, nullptr);
}

// NCCL goes back to the thread's device in the end, which begins to use it where nobody had: so ours is current.
void NcclCommunicator::abandon() noexcept {
  const ncclComm_t ended = giveUp();
  if (ended == nullptr) return;
  const CurrentDevice current(place_.device, std::nothrow);
  const CaptureUnheeded unheeded;
  ncclCommAbort(ended);
}

}  // namespace fairring
