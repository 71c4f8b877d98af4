#include "kernels/device_reduction.h"

#include <algorithm>
#include <cassert>

#include "base/cuda_error.h"
#include "base/cuda_kernel.h"

#define FAIRRING_ISA cuda_device
#include "kernels/device_thread.h"  // before the choice, which names its types

#include "kernels/device_choice.h"

namespace fairring {
namespace {

constexpr int kThreads = 256;  // of a block

template <class Type, class Operation>
__global__ void __launch_bounds__(kThreads) reduceKernel(const __grid_constant__ DeviceArguments arguments) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  cuda_device::DeviceThread<Type, Operation>(arguments, thread, std::uint64_t{gridDim.x} * kThreads).run();
}

struct KernelOf {
  template <class Type, class Operation>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&reduceKernel<Type, Operation>);
  }
};

}  // namespace

DeviceReduction::DeviceReduction(DType dtype, Op op, int device)
    : dtype_(dtype), op_(op), device_(device), kernel_(cuda_device::visitReduction(op, dtype, KernelOf{})) {
  assert(isDefined(op, dtype));
  const CurrentDevice current(device);
  loadKernel(kernel_, device);
  int perMultiprocessor = 0;
  checkCuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&perMultiprocessor, kernel_, kThreads, 0),
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor", device);
  int multiprocessors = 0;
  checkCuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute",
            device);
  mostBlocks_ = static_cast<unsigned>(std::max(1, perMultiprocessor * multiprocessors));
}

std::size_t DeviceReduction::mostInputs() { return kMostDeviceInputs; }

void DeviceReduction::enqueue(void* out, std::span<const Input> inputs, std::uint64_t elements, std::int32_t divisor,
                              cudaStream_t stream) const {
  assert(!inputs.empty() && divisor > 0);
  check(inputs.size() <= kMostDeviceInputs, ErrorKind::Usage, "a sum of ", inputs.size(),
        " arrays on a CUDA device: at most ", kMostDeviceInputs, " are summed at once");
  const bool inPlace = inputs.size() == 1 && inputs[0].data == out && inputs[0].scale == 1.0 && divisor == 1;
  if (elements == 0 || inPlace) return;
  DeviceArguments arguments;
  arguments.out = out;
  arguments.body = vectorBody(out, inputs, elements, bytesOf(dtype_));
  arguments.divisor = divisor;
  arguments.inputCount = static_cast<std::int32_t>(inputs.size());
  std::ranges::copy(inputs, arguments.inputs);
  const std::uint64_t threads = std::max(arguments.body.vectors, arguments.body.loose());
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(mostBlocks_, (threads + kThreads - 1) / kThreads));
  void* parameters[] = {&arguments};
  const CurrentDevice current(device_);
  checkCuda(cudaLaunchKernel(kernel_, dim3(blocks), dim3(kThreads), parameters, 0, stream), "cudaLaunchKernel",
            device_);
}

}  // namespace fairring
