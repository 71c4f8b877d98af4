// The kernels of CUB that Fairring's rows launch, and torch's that keeps a stream busy: each by what it leaves behind.
// The parameters are those of CUB 3.0, of the CUDA 13.0 toolkit.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "emulated.h"

namespace {

using emulated::Kernel;
using emulated::reachArray;
using Key = std::uint64_t;
using Value = std::uint32_t;

constexpr std::int64_t kCyclesPerMicrosecond = 1500;

template <class T>
T parameter(void** parameters, int index) {
  T value;
  std::memcpy(static_cast<void*>(&value), parameters[index], sizeof value);
  return value;
}

struct Pass {
  const Key* keys;
  const Value* values;
  Key* sortedKeys;
  Value* sortedValues;
  std::size_t count;
  int firstBit;
  int bits;
};

// A stable sort by some bits of the keys.
void sort(const Pass& pass) {
  const Key* keys = reachArray(pass.keys, pass.count, "keys");
  const Value* values = reachArray(pass.values, pass.count, "values");
  const Key mask = pass.bits >= 64 ? ~Key{0} : (Key{1} << pass.bits) - 1;
  std::vector<std::size_t> order(pass.count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return (keys[i] >> pass.firstBit) & mask; });
  std::vector<std::pair<Key, Value>> sorted;
  sorted.reserve(pass.count);
  for (const std::size_t i : order) sorted.emplace_back(keys[i], values[i]);
  emulated::pauseOfSeed();
  Key* sortedKeys = reachArray(pass.sortedKeys, pass.count, "sorted keys");
  Value* sortedValues = reachArray(pass.sortedValues, pass.count, "sorted values");
  for (std::size_t i = 0; i < pass.count; ++i) std::tie(sortedKeys[i], sortedValues[i]) = sorted[i];
}

void sortAtOnce(dim3, dim3, void** given) {
  const int firstBit = parameter<int>(given, 5);
  sort({.keys = parameter<const Key*>(given, 0),
        .values = parameter<const Value*>(given, 2),
        .sortedKeys = parameter<Key*>(given, 1),
        .sortedValues = parameter<Value*>(given, 3),
        .count = parameter<std::uint32_t>(given, 4),
        .firstBit = firstBit,
        .bits = parameter<int>(given, 6) - firstBit});
}

void sortOnePass(dim3, dim3, void** given) {
  sort({.keys = parameter<const Key*>(given, 5),
        .values = parameter<const Value*>(given, 7),
        .sortedKeys = parameter<Key*>(given, 4),
        .sortedValues = parameter<Value*>(given, 6),
        .count = static_cast<std::size_t>(parameter<int>(given, 8)),
        .firstBit = parameter<int>(given, 9),
        .bits = parameter<int>(given, 10)});
}

void firstsOfRuns(dim3, dim3, void** given) {
  const auto count = parameter<std::uint32_t>(given, 7);
  const Key* keys = reachArray(parameter<const Key*>(given, 0), count, "sorted keys");
  const Value* values = reachArray(parameter<const Value*>(given, 1), count, "sorted values");
  std::vector<std::pair<Key, Value>> firsts;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i == 0 || keys[i] != keys[i - 1]) firsts.emplace_back(keys[i], values[i]);
  }
  Key* firstKeys = reachArray(parameter<Key*>(given, 2), firsts.size(), "keys of runs");
  Value* firstValues = reachArray(parameter<Value*>(given, 3), firsts.size(), "values of runs");
  for (std::size_t i = 0; i < firsts.size(); ++i) std::tie(firstKeys[i], firstValues[i]) = firsts[i];
  *reachArray(parameter<Key*>(given, 4), 1, "the number of runs") = firsts.size();
}

void beBusy(dim3, dim3, void** given) {
  usleep(static_cast<useconds_t>(parameter<std::int64_t>(given, 0) / kCyclesPerMicrosecond));
}

void leaveNothing(dim3, dim3, void**) {}

struct Known {
  std::vector<std::string> parts;  // of its name
  Kernel kernel;
};

const std::vector<Known>& known() {
  const std::string pairs = "unsigned long, unsigned int, unsigned int";
  static const std::vector<Known> all{
      {{"::spin_kernel(long)"}, {{8}, beBusy}},
      {{"cub::", "DeviceRadixSortSingleTileKernel<", pairs}, {{8, 8, 8, 8, 4, 4, 4}, sortAtOnce}},
      {{"cub::", "DeviceRadixSortOnesweepKernel<", pairs}, {{8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4}, sortOnePass}},
      {{"cub::", "DeviceUniqueByKeySweepKernel<"}, {{8, 8, 8, 8, 8, 8, 1, 4}, firstsOfRuns}},
      {{"cub::", "DeviceRadixSortHistogramKernel<"}, {{}, leaveNothing}},
      {{"cub::", "DeviceRadixSortExclusiveSumKernel<"}, {{}, leaveNothing}},
      {{"cub::", "DeviceCompactInitKernel<"}, {{}, leaveNothing}},
      {{"cub::", "EmptyKernel<"}, {{}, leaveNothing}},
  };
  return all;
}

bool find(const std::string& name, Kernel& kernel) {
  if (name.find("at_cuda_detail") != std::string::npos) return false;  // torch's own CUB, of other parameters
  for (const Known& one : known()) {
    const auto isIn = [&name](const std::string& part) { return name.find(part) != std::string::npos; };
    if (!std::ranges::all_of(one.parts, isIn)) continue;
    kernel = one.kernel;
    return true;
  }
  return false;
}

[[gnu::constructor]] void add() { emulated::addKernels(find); }

}  // namespace
