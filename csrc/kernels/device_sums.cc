#include "kernels/device_sums.h"

#include <algorithm>
#include <cassert>

#include "base/error.h"
#include "kernels/device_arguments.h"

namespace fairring {
namespace {

constexpr DType kSummed[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16};

}  // namespace

DeviceSums::DeviceSums(int device) {
  for (const DType dtype : kSummed) kernels_.try_emplace(dtype, concat("fairring_sum_", name(dtype)).c_str(), device);
}

bool DeviceSums::has(const Reduction& reduction) {
  return reduction.op == Op::Sum && std::ranges::find(kSummed, reduction.dtype) != std::end(kSummed);
}

std::size_t DeviceSums::mostInputs() { return kMostDeviceInputs; }

void DeviceSums::enqueue(DType dtype, void* out, std::span<const Input> inputs, std::uint64_t elements,
                         cudaStream_t stream) const {
  assert(!inputs.empty());
  check(inputs.size() <= kMostDeviceInputs, ErrorKind::Usage, "a sum of ", inputs.size(),
        " arrays on a CUDA device: at most ", kMostDeviceInputs, " are summed at once");
  const bool inPlace = inputs.size() == 1 && inputs[0].data == out && inputs[0].scale == 1.0;
  if (elements == 0 || inPlace) return;
  SumArguments arguments;
  arguments.out = out;
  arguments.body = vectorBody(out, inputs, elements, bytesOf(dtype));
  arguments.inputCount = static_cast<std::int32_t>(inputs.size());
  std::ranges::copy(inputs, arguments.inputs);
  const DeviceKernel& kernel = kernels_.at(dtype);
  const std::uint64_t threads = std::max(arguments.body.vectors, arguments.body.loose());
  const std::uint64_t blocks = (threads + kDeviceThreads - 1) / kDeviceThreads;
  kernel.launch(static_cast<unsigned>(std::min<std::uint64_t>(kernel.blocksAtOnce(), blocks)), &arguments, stream);
}

}  // namespace fairring
