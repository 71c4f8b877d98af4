#include "base/cuda_runtime.h"

#include "base/loaded_function.h"

namespace fairring {

FAIRRING_LOADED(cudaGetLastError);
FAIRRING_LOADED(cudaGetErrorName);
FAIRRING_LOADED(cudaGetErrorString);
FAIRRING_LOADED(cudaGetDeviceCount);
FAIRRING_LOADED(cudaGetDevice);
FAIRRING_LOADED(cudaSetDevice);
FAIRRING_LOADED(cudaDeviceGetAttribute);
FAIRRING_LOADED(cudaDeviceGetStreamPriorityRange);
FAIRRING_LOADED(cudaGetDriverEntryPointByVersion);
FAIRRING_LOADED(cudaMalloc);
FAIRRING_LOADED(cudaFree);
FAIRRING_LOADED(cudaHostAlloc);
FAIRRING_LOADED(cudaFreeHost);
FAIRRING_LOADED(cudaMemcpyAsync);
FAIRRING_LOADED(cudaMemcpy2DAsync);
FAIRRING_LOADED(cudaStreamCreateWithPriority);
FAIRRING_LOADED(cudaStreamDestroy);
FAIRRING_LOADED(cudaStreamSynchronize);
FAIRRING_LOADED(cudaStreamWaitEvent);
FAIRRING_LOADED(cudaStreamIsCapturing);
FAIRRING_LOADED(cudaThreadExchangeStreamCaptureMode);
FAIRRING_LOADED(cudaEventCreateWithFlags);
FAIRRING_LOADED(cudaEventDestroy);
FAIRRING_LOADED(cudaEventRecord);

}  // namespace fairring
