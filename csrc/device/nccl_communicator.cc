#include "device/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/cuda_error.h"
#include "base/cuda_stream.h"

namespace fairring {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{100};

// The place outlives it.
ncclConfig_t configOf(const NcclPlace& place) {
  ncclConfig_t config;
  const auto& [clusterSize, leastBlocks, mostBlocks, trafficClass, network] = place.limits;
  config.blocking = 1;
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

void NcclCommunicator::join(const std::string& id) {
  ncclUniqueId unique;
  check(id.size() == sizeof(unique.internal), ErrorKind::Connection, place_.who, ": an id of NCCL of ", id.size(),
        " B came from the first rank of the machine, not of ", sizeof(unique.internal),
        ": all ranks need the same version of Fairring");
  std::memcpy(unique.internal, id.data(), id.size());
  ncclConfig_t config = configOf(place_);
  // Inside a group this only begins it, and gives the communicator, which abortTogether() needs.
  enqueue("ncclCommInitRankConfig", [&](ncclComm_t /*none*/) {
    return ncclCommInitRankConfig(&comm_, place_.ranks, unique, place_.rank, &config);
  });
}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) return;
  const CurrentDevice current(place_.device, std::nothrow);
  const CaptureUnheeded unheeded;
  try {
    settle("ncclCommFinalize", ncclCommFinalize(comm_));
    ncclCommDestroy(comm_);
  } catch (const Failure&) {
    ncclCommAbort(comm_);
  }
}

void NcclCommunicator::enqueue(const char* name, const Calls& calls) {
  const CurrentDevice current(place_.device);
  const CaptureUnheeded unheeded;
  const Lock inside(inside_);
  Lock lock(mutex_);
  check(!aborted_, ErrorKind::Aborted, place_.who, ": ", name, " on a communicator that was aborted");
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) throw Failure(failure("ncclGroupStart", result));
  ncclResult_t asked = ncclSuccess;
  try {
    asked = calls(comm_);
  } catch (...) {
    ncclGroupEnd();  // a group that has begun has to end
    throw;
  }
  lock.unlock();
  result = ncclGroupEnd();  // likewise after an error
  settle(name, asked != ncclSuccess && asked != ncclInProgress ? asked : result);
}

// With NCCL_COMM_BLOCKING=0 NCCL's calls return before they are done, whatever its configuration says. Some return
// ncclSuccess then, so it is the communicator's state that counts.
ncclResult_t NcclCommunicator::stateAfter(ncclResult_t returned) const {
  if (returned != ncclSuccess && returned != ncclInProgress) return returned;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

void NcclCommunicator::settle(const char* name, ncclResult_t returned) {
  Lock lock(mutex_);
  while (true) {
    check(!aborted_, ErrorKind::Aborted, place_.who, ": ", name, " between the ", place_.ranks,
          " ranks of the machine was under way when the communicator was aborted");
    const ncclResult_t result = stateAfter(returned);
    if (result == ncclSuccess) return;
    if (result != ncclInProgress) throw Failure(failure(name, result));
    aborting_.wait_for(lock, kBetweenLooks, [this] { return aborted_; });
  }
}

Error NcclCommunicator::failure(const char* name, ncclResult_t result) const {
  const char* last = ncclGetLastError(nullptr);
  // A peer that closes its connections may have given up only this communicator.
  return makeError(result == ncclRemoteError ? ErrorKind::Connection : ErrorKind::System, place_.who, ": ", name,
                   " between the ", place_.ranks, " ranks of the machine: ", ncclGetErrorString(result),
                   last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : "",
                   "; NCCL_DEBUG=INFO says more");
}

// Within a group of its calls, NCCL tells each communicator to end as it is named. At the group's end it waits for
// their kernels and frees them.
void NcclCommunicator::abortTogether(std::span<NcclCommunicator* const> communicators) noexcept {
  if (communicators.empty()) return;
  // NCCL goes back to the thread's device in the end, which begins to use it where nobody had: so ours is current.
  const CurrentDevice current(communicators.front()->place_.device, std::nothrow);
  const CaptureUnheeded unheeded;
  ncclGroupStart();
  for (NcclCommunicator* one : communicators) {
    if (ncclComm_t ended = one->giveUp(); ended != nullptr) ncclCommAbort(ended);
  }
  for (NcclCommunicator* one : communicators) {
    const Lock outside(one->inside_);
  }
  ncclGroupEnd();
}

// After this no new call begins with it; null: another caller has been given it, or it has not joined.
ncclComm_t NcclCommunicator::giveUp() noexcept {
  const Lock lock(mutex_);
  aborted_ = true;
  aborting_.notify_all();
  return std::exchange(comm_, nullptr);
}

}  // namespace fairring
