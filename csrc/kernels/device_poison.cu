#include "kernels/device_poison.h"

#include <algorithm>

#include "base/cuda_error.h"
#include "base/cuda_kernel.h"
#include "kernels/device_poison_thread.h"

namespace fairring {
namespace {

// Few, so that they find room beside the program's kernels. They only have to be quick if there is nothing to fill.
constexpr unsigned kBlocks = 16;
constexpr unsigned kThreads = 256;  // of a block

__global__ void __launch_bounds__(kThreads) poisonKernel(const __grid_constant__ PoisonArguments arguments) {
  poison(arguments, std::uint64_t{blockIdx.x} * kThreads + threadIdx.x, std::uint64_t{gridDim.x} * kThreads);
}

const void* kernel() { return reinterpret_cast<const void*>(&poisonKernel); }

}  // namespace

DevicePoison::DevicePoison(int device) : device_(device) {
  const CurrentDevice current(device);
  loadKernel(kernel(), device);
}

void DevicePoison::enqueue(const std::uint64_t* failed, std::span<const std::span<std::byte>> results,
                           cudaStream_t stream) const {
  const CurrentDevice current(device_);
  for (std::size_t done = 0; done < results.size();) {
    PoisonArguments arguments;
    arguments.failed = failed;
    for (; done < results.size() && arguments.count < kMostPoisoned; ++done)
      arguments.results[arguments.count++] = {results[done].data(), results[done].size()};
    void* parameters[] = {&arguments};
    checkCuda(cudaLaunchKernel(kernel(), dim3(kBlocks), dim3(kThreads), parameters, 0, stream), "cudaLaunchKernel",
              device_);
  }
}

}  // namespace fairring
