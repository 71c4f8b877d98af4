// Our own declarations of CUDA and NCCL beside those of their headers: a number or a place that differs stops the
// build.
#include <cstddef>
#include <type_traits>

#include "device/nccl.h"

namespace {

// Macros in CUDA's headers, which therefore come after ours.
constexpr unsigned long long kFlags[] = {fairring::cudaStreamNonBlocking, fairring::cudaEventDisableTiming,
                                         fairring::cudaHostAllocPortable, fairring::cudaHostAllocMapped,
                                         fairring::cudaEnableDefault};

}  // namespace

#include <cuda_runtime_api.h>
#include <nccl.h>

static_assert(kFlags[0] == cudaStreamNonBlocking && kFlags[1] == cudaEventDisableTiming &&
              kFlags[2] == cudaHostAllocPortable && kFlags[3] == cudaHostAllocMapped && kFlags[4] == cudaEnableDefault);

namespace {

template <class Type>
struct Plain {  // how a value is passed: enums as ints, and classes as they are
  using In = std::conditional_t<std::is_pointer_v<Type>, void*, std::conditional_t<std::is_enum_v<Type>, int, Type>>;
};
template <>
struct Plain<ncclUniqueId> {
  using In = fairring::ncclUniqueId;
};
template <class Type>
using AsPassed = Plain<Type>::In;
template <class Function>
struct Passed;
template <class Result, class... Arguments>
struct Passed<Result(Arguments...)> {
  using Form = AsPassed<Result>(AsPassed<Arguments>...);
};

}  // namespace

#define SAME_NUMBER(name) static_assert(int(fairring::name) == int(::name))
#define SAME_CALL(name)                                                                      \
  static_assert(std::is_same_v<Passed<std::remove_cvref_t<decltype(*fairring::name)>>::Form, \
                               Passed<std::remove_cvref_t<decltype(::name)>>::Form>)
#define SAME_PLACE(member) static_assert(offsetof(fairring::ncclConfig_t, member) == offsetof(ncclConfig_t, member))

SAME_NUMBER(cudaSuccess);
SAME_NUMBER(cudaErrorInvalidValue);
SAME_NUMBER(cudaErrorMemoryAllocation);
SAME_NUMBER(cudaErrorInvalidPitchValue);
SAME_NUMBER(cudaDevAttrMultiProcessorCount);
SAME_NUMBER(cudaDevAttrComputeCapabilityMajor);
SAME_NUMBER(cudaDevAttrComputeCapabilityMinor);
SAME_NUMBER(cudaMemcpyHostToDevice);
SAME_NUMBER(cudaMemcpyDeviceToHost);
SAME_NUMBER(cudaMemcpyDeviceToDevice);
SAME_NUMBER(cudaStreamCaptureModeRelaxed);
SAME_NUMBER(cudaStreamCaptureStatusNone);
SAME_NUMBER(cudaDriverEntryPointSuccess);
SAME_NUMBER(cudaDriverEntryPointSymbolNotFound);
SAME_NUMBER(ncclSuccess);
SAME_NUMBER(ncclRemoteError);
SAME_NUMBER(ncclInProgress);
SAME_NUMBER(ncclUint8);
SAME_NUMBER(ncclFloat16);
SAME_NUMBER(ncclFloat32);
SAME_NUMBER(ncclFloat64);
SAME_NUMBER(ncclBfloat16);
SAME_NUMBER(ncclSum);
SAME_NUMBER(ncclMax);

SAME_CALL(cudaGetLastError);
SAME_CALL(cudaGetErrorName);
SAME_CALL(cudaGetErrorString);
SAME_CALL(cudaGetDeviceCount);
SAME_CALL(cudaGetDevice);
SAME_CALL(cudaSetDevice);
SAME_CALL(cudaDeviceGetAttribute);
SAME_CALL(cudaDeviceGetStreamPriorityRange);
SAME_CALL(cudaGetDriverEntryPointByVersion);
SAME_CALL(cudaFree);
SAME_CALL(cudaFreeHost);
SAME_CALL(cudaMemcpyAsync);
SAME_CALL(cudaMemcpy2DAsync);
SAME_CALL(cudaStreamCreateWithPriority);
SAME_CALL(cudaStreamDestroy);
SAME_CALL(cudaStreamSynchronize);
SAME_CALL(cudaStreamWaitEvent);
SAME_CALL(cudaStreamIsCapturing);
SAME_CALL(cudaThreadExchangeStreamCaptureMode);
SAME_CALL(cudaEventCreateWithFlags);
SAME_CALL(cudaEventDestroy);
SAME_CALL(cudaEventRecord);
SAME_CALL(ncclGetErrorString);
SAME_CALL(ncclGetLastError);
SAME_CALL(ncclGetUniqueId);
SAME_CALL(ncclCommInitRankConfig);
SAME_CALL(ncclCommGetAsyncError);
SAME_CALL(ncclCommFinalize);
SAME_CALL(ncclCommDestroy);
SAME_CALL(ncclCommAbort);
SAME_CALL(ncclGroupStart);
SAME_CALL(ncclGroupEnd);
SAME_CALL(ncclReduceScatter);
SAME_CALL(ncclReduce);
SAME_CALL(ncclAllGather);
SAME_CALL(ncclBroadcast);

SAME_PLACE(magic);
SAME_PLACE(version);
SAME_PLACE(blocking);
SAME_PLACE(cgaClusterSize);
SAME_PLACE(minCTAs);
SAME_PLACE(maxCTAs);
SAME_PLACE(netName);
SAME_PLACE(splitShare);
SAME_PLACE(trafficClass);
static_assert(sizeof(fairring::ncclConfig_t) <= sizeof(ncclConfig_t));
