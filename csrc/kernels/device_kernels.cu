// Fairring's kernels. NVRTC compiles them (device_images.py); device_kernel.h launches them by these names.
#define FAIRRING_ISA cuda_device
#include "kernels/device_poison_thread.h"
#include "kernels/device_thread.h"

namespace fairring {
namespace {

__device__ std::uint64_t thisThread() { return std::uint64_t{blockIdx.x} * kDeviceThreads + threadIdx.x; }
__device__ std::uint64_t allThreads() { return std::uint64_t{gridDim.x} * kDeviceThreads; }

}  // namespace

#define FAIRRING_SUM(name, Type)                                                               \
  extern "C" __global__ void __launch_bounds__(kDeviceThreads)                                 \
      fairring_sum_##name(const __grid_constant__ SumArguments arguments) {                    \
    cuda_device::DeviceThread<cuda_device::Type>(arguments, thisThread(), allThreads()).run(); \
  }

FAIRRING_SUM(Float32, Plain<float>)
FAIRRING_SUM(Float64, Plain<double>)
FAIRRING_SUM(BFloat16, Brain)
FAIRRING_SUM(Float16, Half)

extern "C" __global__ void __launch_bounds__(kDeviceThreads)
    fairring_poison(const __grid_constant__ PoisonArguments arguments) {
  poison(arguments, thisThread(), allThreads());
}

}  // namespace fairring
