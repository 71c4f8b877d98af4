// CUDA runtime functions that torch's libraries are linked to and no test needs. A call is reported and refused.
#include "report.h"

namespace {

constexpr int kNotSupported = 801;  // cudaErrorNotSupported

}  // namespace

#define REFUSED(name)                                           \
  extern "C" int name() {                                       \
    emulated::say("%s is not emulated and was refused", #name); \
    return kNotSupported;                                       \
  }

REFUSED(cudaDeviceGetGraphMemAttribute)
REFUSED(cudaDeviceSetGraphMemAttribute)
REFUSED(cudaFreeAsync)
REFUSED(cudaGetSymbolAddress)
REFUSED(cudaGraphAddNode)
REFUSED(cudaGraphConditionalHandleCreate)
REFUSED(cudaGraphDebugDotPrint)
REFUSED(cudaGraphNodeGetDependencies)
REFUSED(cudaIpcCloseMemHandle)
REFUSED(cudaIpcGetEventHandle)
REFUSED(cudaIpcGetMemHandle)
REFUSED(cudaIpcOpenEventHandle)
REFUSED(cudaIpcOpenMemHandle)
REFUSED(cudaKernelSetAttributeForDevice)
REFUSED(cudaLaunchCooperativeKernel)
REFUSED(cudaLibraryGetGlobal)
REFUSED(cudaLibraryGetKernel)
REFUSED(cudaLibraryGetKernelCount)
REFUSED(cudaLibraryGetManaged)
REFUSED(cudaLibraryGetUnifiedFunction)
REFUSED(cudaLibraryLoadData)
REFUSED(cudaLibraryLoadFromFile)
REFUSED(cudaLibraryUnload)
REFUSED(cudaMallocAsync)
REFUSED(cudaMallocManaged)
REFUSED(cudaMemPoolGetAttribute)
REFUSED(cudaMemcpyToSymbol)
REFUSED(cudaStreamBeginCaptureToGraph)
REFUSED(cudaStreamUpdateCaptureDependencies)
