// The part of CUDA's runtime that we call, declared by its stable interface, which is the same in CUDA 12 and 13: no
// header of CUDA is needed to build. Where torch has no CUDA all are null (loaded_function.h). Any thread.
// tests/emulated_cuda/declarations.cc compares these with CUDA's own headers.
#pragma once

#include <cstddef>

struct CUstream_st;
struct CUevent_st;

namespace fairring {

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
using cudaStream_t = ::CUstream_st*;
using cudaEvent_t = ::CUevent_st*;

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidPitchValue = 12,
};
enum cudaDeviceAttr : int {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
};
enum cudaMemcpyKind : int { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode : int { cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus : int { cudaStreamCaptureStatusNone = 0 };
enum cudaDriverEntryPointQueryResult : int { cudaDriverEntryPointSuccess = 0, cudaDriverEntryPointSymbolNotFound = 1 };

constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDisableTiming = 2;
constexpr unsigned cudaHostAllocPortable = 1;
constexpr unsigned cudaHostAllocMapped = 2;
constexpr unsigned long long cudaEnableDefault = 0;
// NOLINTEND(readability-identifier-naming)

extern cudaError_t (*const cudaGetLastError)();
extern const char* (*const cudaGetErrorName)(cudaError_t error);
extern const char* (*const cudaGetErrorString)(cudaError_t error);
extern cudaError_t (*const cudaGetDeviceCount)(int* count);
extern cudaError_t (*const cudaGetDevice)(int* device);
extern cudaError_t (*const cudaSetDevice)(int device);
extern cudaError_t (*const cudaDeviceGetAttribute)(int* value, cudaDeviceAttr attribute, int device);
extern cudaError_t (*const cudaDeviceGetStreamPriorityRange)(int* least, int* greatest);
extern cudaError_t (*const cudaGetDriverEntryPointByVersion)(const char* name, void** call, unsigned version,
                                                             unsigned long long flags,
                                                             cudaDriverEntryPointQueryResult* result);

extern cudaError_t (*const cudaMalloc)(void** memory, std::size_t bytes);
extern cudaError_t (*const cudaFree)(void* memory);
extern cudaError_t (*const cudaHostAlloc)(void** memory, std::size_t bytes, unsigned flags);
extern cudaError_t (*const cudaFreeHost)(void* memory);
extern cudaError_t (*const cudaMemcpyAsync)(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                            cudaStream_t stream);
extern cudaError_t (*const cudaMemcpy2DAsync)(void* to, std::size_t toPitch, const void* from, std::size_t fromPitch,
                                              std::size_t width, std::size_t height, cudaMemcpyKind kind,
                                              cudaStream_t stream);

extern cudaError_t (*const cudaStreamCreateWithPriority)(cudaStream_t* stream, unsigned flags, int priority);
extern cudaError_t (*const cudaStreamDestroy)(cudaStream_t stream);
extern cudaError_t (*const cudaStreamSynchronize)(cudaStream_t stream);
extern cudaError_t (*const cudaStreamWaitEvent)(cudaStream_t stream, cudaEvent_t event, unsigned flags);
extern cudaError_t (*const cudaStreamIsCapturing)(cudaStream_t stream, cudaStreamCaptureStatus* status);
extern cudaError_t (*const cudaThreadExchangeStreamCaptureMode)(cudaStreamCaptureMode* mode);

extern cudaError_t (*const cudaEventCreateWithFlags)(cudaEvent_t* event, unsigned flags);
extern cudaError_t (*const cudaEventDestroy)(cudaEvent_t event);
extern cudaError_t (*const cudaEventRecord)(cudaEvent_t event, cudaStream_t stream);

}  // namespace fairring
