// The state that CUDA keeps for each thread of the program, and the checks whether a thread may call it at all.
#pragma once

#include <cuda_runtime_api.h>

namespace emulated {

struct HostThread {
  int device = 0;
  bool hasContext = false;  // current on this thread, as calls of the driver need; most calls of the runtime see to it
  cudaError_t lastError = cudaSuccess;
  bool isInHostFunction = false;
  cudaStreamCaptureMode captureMode = cudaStreamCaptureModeGlobal;
};

HostThread& hostThread();
cudaError_t failed(cudaError_t error);  // remembers it for cudaGetLastError

// At the beginning of each call: false after a fork of a process that has used a device. Ends the process inside a
// function that a stream calls, where CUDA forbids all calls.
bool mayCall(const char* name);
// Under the devices' mutex: whether a capture forbids what may synchronise.
bool isForbiddenByCapture(const char* name);
void noteFirstUse();

}  // namespace emulated
