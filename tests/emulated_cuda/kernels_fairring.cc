// Fairring's kernels by their names: what one thread of a device does (csrc/kernels), thread after thread.
#include <map>
#include <string>

#define FAIRRING_ISA cuda_device
#include "emulated.h"
#include "kernels/device_poison_thread.h"
#include "kernels/device_thread.h"

namespace fairring {
namespace {

template <class Type>
void sum(dim3 grid, dim3 block, void** parameters) {
  SumArguments arguments = *static_cast<const SumArguments*>(parameters[0]);
  const std::uint64_t bytes = arguments.body.elements * sizeof(typename Type::Element);
  arguments.out = emulated::reach(arguments.out, bytes, "a sum");
  for (std::int32_t i = 0; i < arguments.inputCount; ++i)
    arguments.inputs[i].data = emulated::reach(arguments.inputs[i].data, bytes, "a sum's input");
  emulated::pauseOfSeed();
  const std::uint64_t threads = std::uint64_t{grid.x} * block.x;
  for (std::uint64_t thread = 0; thread < threads; ++thread)
    cuda_device::DeviceThread<Type>(arguments, thread, threads).run();
}

void poisonResults(dim3 grid, dim3 block, void** parameters) {
  PoisonArguments arguments = *static_cast<const PoisonArguments*>(parameters[0]);
  for (std::uint64_t i = 0; i < arguments.count; ++i) {
    PoisonArguments::Memory& result = arguments.results[i];
    result.begin = emulated::reachArray(result.begin, result.bytes, "a result");
  }
  emulated::pauseOfSeed();
  const std::uint64_t threads = std::uint64_t{grid.x} * block.x;
  for (std::uint64_t thread = 0; thread < threads; ++thread) poison(arguments, thread, threads);
}

bool find(const std::string& name, emulated::Kernel& kernel) {
  static const std::map<std::string, emulated::Kernel> table{
      {"fairring_sum_Float32", {{sizeof(SumArguments)}, sum<cuda_device::Plain<float>>}},
      {"fairring_sum_Float64", {{sizeof(SumArguments)}, sum<cuda_device::Plain<double>>}},
      {"fairring_sum_BFloat16", {{sizeof(SumArguments)}, sum<cuda_device::Brain>}},
      {"fairring_sum_Float16", {{sizeof(SumArguments)}, sum<cuda_device::Half>}},
      {"fairring_poison", {{sizeof(PoisonArguments)}, poisonResults}},
  };
  const auto found = table.find(name);
  if (found == table.end()) return false;
  kernel = found->second;
  return true;
}

[[gnu::constructor]] void add() { emulated::addKernels(find); }

}  // namespace
}  // namespace fairring
