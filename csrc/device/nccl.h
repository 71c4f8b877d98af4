// The part of NCCL that we call, declared by its stable interface: no header of NCCL is needed to build. Where torch
// has no NCCL all are null (base/loaded_function.h). Any thread. tests/emulated_cuda/declarations.cc compares these
// with NCCL's own header.
#pragma once

#include <climits>
#include <cstddef>

#include "base/cuda_runtime.h"

struct ncclComm;

namespace fairring {

// NOLINTBEGIN(readability-identifier-naming): NCCL's names
using ncclComm_t = ::ncclComm*;
struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int { ncclSuccess = 0, ncclRemoteError = 6, ncclInProgress = 7 };
enum ncclDataType_t : int { ncclUint8 = 1, ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 };
enum ncclRedOp_t : int { ncclSum = 0, ncclMax = 2 };

// Its beginning: the size says how much of it is there, and NCCL takes its defaults for the rest. All that is here NCCL
// has had since the version that it names, 2.27, which torch 2.11 has at least.
struct ncclConfig_t {
  std::size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 22700;
  int blocking = INT_MIN;  // this number: NCCL's default
  int cgaClusterSize = INT_MIN;
  int minCTAs = INT_MIN;
  int maxCTAs = INT_MIN;
  const char* netName = nullptr;
  int splitShare = INT_MIN;
  int trafficClass = INT_MIN;
};
// NOLINTEND(readability-identifier-naming)

extern const char* (*const ncclGetErrorString)(ncclResult_t result);
extern const char* (*const ncclGetLastError)(ncclComm_t comm);
extern ncclResult_t (*const ncclGetUniqueId)(ncclUniqueId* id);
extern ncclResult_t (*const ncclCommInitRankConfig)(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                                    ncclConfig_t* config);
extern ncclResult_t (*const ncclCommGetAsyncError)(ncclComm_t comm, ncclResult_t* state);
extern ncclResult_t (*const ncclCommFinalize)(ncclComm_t comm);
extern ncclResult_t (*const ncclCommDestroy)(ncclComm_t comm);
extern ncclResult_t (*const ncclCommAbort)(ncclComm_t comm);
extern ncclResult_t (*const ncclGroupStart)();
extern ncclResult_t (*const ncclGroupEnd)();
extern ncclResult_t (*const ncclReduceScatter)(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
extern ncclResult_t (*const ncclReduce)(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
extern ncclResult_t (*const ncclAllGather)(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                           ncclComm_t comm, cudaStream_t stream);
extern ncclResult_t (*const ncclBroadcast)(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                           int root, ncclComm_t comm, cudaStream_t stream);

}  // namespace fairring
