// libnccl.so.2: what torch and Fairring call of NCCL. A handle holds its communicator; so does what is under way.
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string_view>
#include <utility>

#include "call_counts.h"
#include "emulated.h"
#include "faults.h"
#include "nccl_communicator.h"
#include "nccl_reduction.h"

using emulated::Call;
using emulated::Communicator;
using emulated::Kind;

struct ncclComm {
  std::shared_ptr<Communicator> communicator;
};

namespace {

thread_local int depth = 0;  // of groups
thread_local std::vector<std::pair<ncclComm_t, Call>> waiting;
thread_local std::vector<std::shared_ptr<Communicator>> joining;
thread_local std::vector<ncclComm_t> aborting;
thread_local std::string lastError;

ncclResult_t refused(ncclResult_t result, std::string why) {
  lastError = std::move(why);
  emulated::say("NCCL: %s", lastError.c_str());
  return result;
}

ncclResult_t failedForTest() { return refused(ncclSystemError, "a call that a test lets fail"); }

bool isBlocking(const ncclConfig_t* config) {
  const char* forced = std::getenv("NCCL_COMM_BLOCKING");
  if (forced != nullptr) return std::string_view(forced) != "0";
  return config == nullptr || config->blocking != 0;
}

std::string libraryOf(const void* caller) {
  Dl_info from;
  return dladdr(caller, &from) == 0 ? "" : from.dli_fname;
}

struct Configured {
  std::string library;  // whose call it was
  std::string config;
};
std::mutex configuring;  // the next
std::vector<Configured> configured;

void noteConfig(const void* caller, const ncclConfig_t* config) {
  if (config == nullptr) return;
  const auto shown = [](int value) { return value == NCCL_CONFIG_UNDEF_INT ? "none" : std::to_string(value); };
  const std::lock_guard lock(configuring);
  configured.push_back({libraryOf(caller), "cluster " + shown(config->cgaClusterSize) + ", blocks " +
                                               shown(config->minCTAs) + " to " + shown(config->maxCTAs) +
                                               ", traffic class " + shown(config->trafficClass) + ", network " +
                                               (config->netName == nullptr ? "none" : config->netName)});
}

ncclResult_t issue(const std::vector<std::pair<ncclComm_t, Call>>& all) {
  ncclResult_t result = ncclSuccess;
  std::vector<ncclComm_t> comms;
  for (const auto& [comm, call] : all) {
    if (std::ranges::find(comms, comm) == comms.end()) comms.push_back(comm);
  }
  for (const ncclComm_t comm : comms) {
    std::vector<Call> calls;
    for (const auto& [other, call] : all) {
      if (other == comm) calls.push_back(call);
    }
    const bool oneStream = std::ranges::all_of(calls, [&](const Call& c) { return c.stream == calls[0].stream; });
    if (!oneStream) return refused(ncclInvalidUsage, "calls of one group on several streams are not emulated");
    const ncclResult_t issued = comm->communicator->issue(calls);
    if (issued == ncclInvalidUsage) return refused(issued, "a call on a communicator whose last one is in progress");
    if (issued != ncclSuccess) result = issued;
  }
  return result;
}

ncclResult_t add(ncclComm_t comm, Call call) {
  if (comm == nullptr) return refused(ncclInvalidArgument, "a call without a communicator");
  const auto isBad = [&call](const void* p) { return call.count > 0 && p != nullptr && !emulated::isReachable(p); };
  if (isBad(call.send) || isBad(call.receive)) return refused(ncclInvalidArgument, "memory that no device reaches");
  call.factor = comm->communicator->factorOf(call.operation);
  if (depth == 0) return issue({{comm, call}});
  waiting.emplace_back(comm, call);
  return ncclSuccess;
}

ncclResult_t joinAll(const std::vector<std::shared_ptr<Communicator>>& all) {
  ncclResult_t result = ncclSuccess;
  for (const auto& one : all) {
    if (one->isBlocking() != all.front()->isBlocking())
      return refused(ncclInvalidArgument, "communicators that block, and others, in one group");
    if (const ncclResult_t joined = one->join(); joined != ncclSuccess) result = joined;
  }
  return result;
}

void freeAborted(ncclComm_t comm) {
  if (comm->communicator->isInCall())
    emulated::fatal("NCCL: a communicator is freed under a thread that is in a call with it");
  comm->communicator->release();
  delete comm;
}

}  // namespace

extern "C" {

// How the last communicator was configured by a library whose file has that name in its own; empty: by none.
EMULATED_API const char* ncclEmulatedConfig(const char* library) {
  static thread_local std::string config;
  const std::lock_guard lock(configuring);
  config.clear();
  for (const Configured& one : configured) {
    if (one.library.find(library) != std::string::npos) config = one.config;
  }
  return config.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "emulated-nccl-%08x%08x", random(), random());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "an error of emulated NCCL";
  }
}

const char* ncclGetLastError(ncclComm_t) { return lastError.c_str(); }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (emulated::isToFail("ncclCommInitRankConfig", __builtin_return_address(0))) return failedForTest();
  noteConfig(__builtin_return_address(0), config);
  int device = 0;
  cudaGetDevice(&device);
  const bool isFairrings = libraryOf(__builtin_return_address(0)).find("_core") != std::string::npos;
  *comm =
      new ncclComm{std::make_shared<Communicator>(id.internal, rank, ranks, device, isBlocking(config), !isFairrings)};
  if (depth == 0) return (*comm)->communicator->join();
  joining.push_back((*comm)->communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  return ncclCommInitRankConfig(comm, ranks, ids[0], rank, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  if (emulated::isToFail("ncclCommSplit", __builtin_return_address(0))) return failedForTest();
  noteConfig(__builtin_return_address(0), config);
  const auto give = [made](std::shared_ptr<Communicator> part) {
    *made = part == nullptr ? nullptr : new ncclComm{std::move(part)};
  };
  const ncclResult_t result = comm->communicator->split(color, key, isBlocking(config), give);
  return result == ncclSuccess ? result : refused(result, "a split of a communicator that is in progress");
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  emulated::countCall("ncclCommGetAsyncError", __builtin_return_address(0));
  *result = comm->communicator->state();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->communicator->ranks();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->communicator->rank();
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->communicator->device();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->communicator->finalize(); }

// As in NCCL, it is no error to end none: torch aborts a communicator a second time that it has aborted already.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->communicator->release();
  delete comm;
  return ncclSuccess;
}

// In a group this tells the communicator's calls to end, and the group's end frees it.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  comm->communicator->abort();
  if (depth > 0) {
    aborting.push_back(comm);
  } else {
    freeAborted(comm);
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  for (const ncclComm_t comm : std::exchange(aborting, {})) freeAborted(comm);
  const auto calls = std::exchange(waiting, {});
  const auto joined = joinAll(std::exchange(joining, {}));
  if (joined != ncclSuccess || calls.empty()) return joined;
  if (emulated::isToFail("ncclGroupEnd", __builtin_return_address(0))) return failedForTest();
  return issue(calls);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::AllReduce, send, receive, count, type, operation, 0, stream});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, {Kind::ReduceScatter, send, receive, count, type, operation, 0, stream});
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add(comm, {Kind::AllGather, send, receive, count, type, 0, 0, stream});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const void* own = comm->communicator->rank() == root ? send : nullptr;
  return add(comm, {Kind::Broadcast, own, receive, count, type, 0, root, stream});
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  void* own = comm->communicator->rank() == root ? receive : nullptr;
  return add(comm, {Kind::Reduce, send, own, count, type, operation, root, stream});
}

ncclResult_t ncclAlltoAll(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return add(comm, {Kind::AllToAll, send, receive, count, type, 0, 0, stream});
}

ncclResult_t ncclGather(const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  void* own = comm->communicator->rank() == root ? receive : nullptr;
  return add(comm, {Kind::Gather, send, own, count, type, 0, root, stream});
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, {Kind::Send, send, nullptr, count, type, 0, peer, stream});
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add(comm, {Kind::Receive, nullptr, receive, count, type, 0, peer, stream});
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* operation, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const std::size_t bytes = emulated::bytesOf(type);
  if (residence == ncclScalarDevice) cudaDeviceSynchronize();
  const void* at = residence == ncclScalarDevice ? emulated::reach(scalar, bytes, "a factor") : scalar;
  *operation = static_cast<ncclRedOp_t>(comm->communicator->addFactor(emulated::readFactor(at, type)));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void** handle) {
  *handle = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return ncclSuccess; }

ncclResult_t ncclMemAlloc(void** address, size_t bytes) {
  return cudaMalloc(address, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* address) {
  return cudaFree(address) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

}  // extern "C"
