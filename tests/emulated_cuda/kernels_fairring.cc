// Fairring's kernels by their names: what one thread of a device does (csrc/kernels), thread after thread.
#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>

#define FAIRRING_ISA cuda_device
#include "kernels/device_thread.h"  // before the choice, which names its types
//
#include "kernels/device_choice.h"
//
#include "kernels/device_poison_thread.h"
//
#include "emulated.h"

namespace fairring {

namespace {

using emulated::Kernel;

template <class T>
std::string nameOf() {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, nullptr), std::free);
  return name.get();
}

template <class Type, class Operation>
void reduce(dim3 grid, dim3 block, void** parameters) {
  DeviceArguments arguments = *static_cast<const DeviceArguments*>(parameters[0]);
  const std::uint64_t bytes = arguments.body.elements * sizeof(typename Type::Element);
  arguments.out = emulated::reach(arguments.out, bytes, "a reduction's result");
  for (std::int32_t i = 0; i < arguments.inputCount; ++i)
    arguments.inputs[i].data = emulated::reach(arguments.inputs[i].data, bytes, "a reduction's input");
  emulated::pauseOfSeed();
  const std::uint64_t threads = std::uint64_t{grid.x} * block.x;
  for (std::uint64_t thread = 0; thread < threads; ++thread)
    cuda_device::DeviceThread<Type, Operation>(arguments, thread, threads).run();
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

using Table = std::map<std::string, Kernel>;

struct AddReduction {
  Table& table;
  template <class Type, class Operation>
  int operator()() const {
    table["reduceKernel<" + nameOf<Type>() + ", " + nameOf<Operation>() + ">"] = {{sizeof(DeviceArguments)},
                                                                                  reduce<Type, Operation>};
    return 0;
  }
};

Table makeTable() {
  Table table;
  for (int i = 0; i <= static_cast<int>(DType::Float8E5M2); ++i) {
    const auto dtype = static_cast<DType>(i);
    for (int j = 0; j <= static_cast<int>(Op::BitXor); ++j) {
      const auto op = static_cast<Op>(j);
      if (isDefined(op, dtype)) cuda_device::visitReduction(op, dtype, AddReduction{table});
    }
  }
  table["poisonKernel"] = {{sizeof(PoisonArguments)}, poisonResults};
  return table;
}

bool find(const std::string& name, Kernel& kernel) {
  static const Table table = makeTable();
  static const std::string own = "fairring::(anonymous namespace)::";
  const std::size_t begin = name.find(own);
  if (begin == std::string::npos) return false;
  const std::size_t from = begin + own.size();
  const auto found = table.find(name.substr(from, name.rfind('(') - from));
  if (found == table.end()) return false;
  kernel = found->second;
  return true;
}

[[gnu::constructor]] void add() { emulated::addKernels(find); }

}  // namespace
}  // namespace fairring
