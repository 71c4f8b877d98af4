#include "kernels/device_poison.h"

#include "kernels/device_poison_thread.h"

namespace fairring {
namespace {

// Few, so that they find room beside the program's kernels. They only have to be quick if there is nothing to fill.
constexpr unsigned kBlocks = 16;

}  // namespace

void DevicePoison::enqueue(const std::uint64_t* failed, std::span<const std::span<std::byte>> results,
                           cudaStream_t stream) const {
  for (std::size_t done = 0; done < results.size();) {
    PoisonArguments arguments;
    arguments.failed = failed;
    for (; done < results.size() && arguments.count < kMostPoisoned; ++done)
      arguments.results[arguments.count++] = {results[done].data(), results[done].size()};
    kernel_.launch(kBlocks, &arguments, stream);
  }
}

}  // namespace fairring
