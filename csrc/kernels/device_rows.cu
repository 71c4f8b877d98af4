#include "kernels/device_rows.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>
#include <limits>

#include "base/cuda_error.h"
#include "base/cuda_kernel.h"
#include "base/cuda_memory.h"
#include "base/cuda_stream.h"

#define FAIRRING_ISA cuda_device
#include "kernels/device_row_thread.h"  // before the choice, which names its types

#include "kernels/device_choice.h"

namespace fairring {
namespace {

constexpr int kThreads = 256;                    // of a block
constexpr std::uint64_t kMostBlocks = 16 << 10;  // more than any device runs at once: rows differ in length
constexpr std::uint64_t kAlignment = 256;

constexpr DType kRowDTypes[] = {DType::Float32, DType::Float64, DType::BFloat16,   DType::Float16, DType::Int8,
                                DType::Int16,   DType::Int32,   DType::Int64,      DType::UInt8,   DType::UInt16,
                                DType::UInt32,  DType::UInt64,  DType::Float8E4M3, DType::Bool,    DType::Float8E5M2};

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

unsigned blocksFor(std::uint64_t threads) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>((threads + kThreads - 1) / kThreads, 1, kMostBlocks));
}

__global__ void __launch_bounds__(kThreads) number(std::uint32_t* places, std::uint64_t count) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += threads)
    places[i] = static_cast<std::uint32_t>(i);
}

template <class Type, class Operation, bool HasVectors>
__global__ void __launch_bounds__(kThreads) sumRowsKernel(const __grid_constant__ RowArguments arguments) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  cuda_device::RowThread<Type, Operation, HasVectors>(arguments, thread, std::uint64_t{gridDim.x} * kThreads).run();
}

template <bool HasVectors>
struct KernelOf {
  template <class Type, class Operation>
  const void* operator()() const {
    return reinterpret_cast<const void*>(&sumRowsKernel<Type, Operation, HasVectors>);
  }
};

// The layout of the scratch memory: numbers, the sorted keys, and CUB's own temporary storage.
struct Scratch {
  std::uint32_t* places;
  std::uint64_t* sorted;
  std::byte* cub;

  Scratch(std::byte* memory, std::uint64_t entries)
      : places(reinterpret_cast<std::uint32_t*>(memory)),
        sorted(reinterpret_cast<std::uint64_t*>(memory + aligned(entries * sizeof(std::uint32_t)))),
        cub(memory + bytesBeforeCub(entries)) {}

  static std::uint64_t bytesBeforeCub(std::uint64_t entries) {
    return aligned(entries * sizeof(std::uint32_t)) + aligned(entries * sizeof(std::uint64_t));
  }
};

// If `memory` is null, they only return the size that they need.
void sort(std::byte* memory, std::size_t& bytes, const MatchedRows& to, const Scratch& scratch,
          const std::uint64_t* keys, std::uint64_t entries, int bits, int device, cudaStream_t stream) {
  checkCuda(cub::DeviceRadixSort::SortPairs(memory, bytes, keys, scratch.sorted, scratch.places, to.order,
                                            static_cast<std::int32_t>(entries), 0, bits, stream),
            "cub::DeviceRadixSort::SortPairs", device);
}

void takeFirsts(std::byte* memory, std::size_t& bytes, const MatchedRows& to, const Scratch& scratch,
                std::uint64_t entries, int device, cudaStream_t stream) {
  checkCuda(cub::DeviceSelect::UniqueByKey(memory, bytes, scratch.sorted, scratch.places, to.keys, to.begins, to.count,
                                           static_cast<std::int32_t>(entries), stream),
            "cub::DeviceSelect::UniqueByKey", device);
}

// Keys of fewer bits need no more.
std::size_t cubBytes(std::uint64_t entries, int device) {
  std::size_t sorting = 0;
  std::size_t selecting = 0;
  const Scratch nowhere(nullptr, 0);
  sort(nullptr, sorting, {}, nowhere, nullptr, entries, 64, device, nullptr);
  takeFirsts(nullptr, selecting, {}, nowhere, entries, device, nullptr);
  return std::max(sorting, selecting);
}

// CUB sorts so few in one block, and so many in passes, by other kernels.
constexpr std::uint64_t kFewEntries = 1;
constexpr std::uint64_t kManyEntries = 64 << 10;

// A trial with keys that are all the same.
void matchOnTrial(std::uint64_t entries, int device, const CudaStream& stream) {
  const auto keys = deviceMemory(entries * sizeof(std::uint64_t), device);
  const auto unique = deviceMemory(entries * sizeof(std::uint64_t), device);
  const auto begins = deviceMemory(entries * sizeof(std::uint32_t), device);
  const auto order = deviceMemory(entries * sizeof(std::uint32_t), device);
  const auto count = deviceMemory(sizeof(std::uint64_t), device);
  const auto scratch = deviceMemory(matchScratchBytes(entries, device), device);
  const MatchedRows matched{.keys = reinterpret_cast<std::uint64_t*>(unique.get()),
                            .begins = reinterpret_cast<std::uint32_t*>(begins.get()),
                            .order = reinterpret_cast<std::uint32_t*>(order.get()),
                            .count = reinterpret_cast<std::uint64_t*>(count.get())};
  checkCuda(cudaMemsetAsync(keys.get(), 0, entries * sizeof(std::uint64_t), stream.get()), "cudaMemsetAsync", device);
  matchRows(matched, reinterpret_cast<const std::uint64_t*>(keys.get()), entries, 1, scratch.get(), device,
            stream.get());
  stream.synchronize();  // before the memory goes
}

}  // namespace

void loadRowKernels(int device) {
  for (const DType dtype : kRowDTypes) {
    loadKernel(cuda_device::visitSum(dtype, KernelOf<true>{}), device);
    loadKernel(cuda_device::visitSum(dtype, KernelOf<false>{}), device);
  }
  const CurrentDevice current(device);
  const CaptureUnheeded unheeded;
  const CudaStream stream(device);
  for (const std::uint64_t entries : {kFewEntries, kManyEntries}) matchOnTrial(entries, device, stream);
}

std::uint64_t matchScratchBytes(std::uint64_t entries, int device) {
  const CurrentDevice current(device);
  return Scratch::bytesBeforeCub(entries) + cubBytes(entries, device);
}

void matchRows(const MatchedRows& to, const std::uint64_t* keys, std::uint64_t entries, std::uint64_t keysBelow,
               std::byte* scratch, int device, cudaStream_t stream) {
  check(entries > 0 && entries <= std::uint64_t{std::numeric_limits<std::int32_t>::max()}, ErrorKind::Usage, entries,
        " entries of a sparse tensor on CUDA device ", device, ": from 1 to 2^31 - 1 are matched at once");
  const CurrentDevice current(device);
  const Scratch there(scratch, entries);
  number<<<blocksFor(entries), kThreads, 0, stream>>>(there.places, entries);
  checkCuda(cudaGetLastError(), "the launch of a kernel", device);
  const int bits = std::max(1, static_cast<int>(std::bit_width(keysBelow - 1)));
  std::size_t bytes = cubBytes(entries, device);
  sort(there.cub, bytes, to, there, keys, entries, bits, device, stream);
  takeFirsts(there.cub, bytes, to, there, entries, device, stream);
}

void sumRows(DType dtype, void* out, const void* values, std::uint64_t rowElements, const MatchedRows& matched,
             std::uint64_t rows, std::uint64_t entries, int device, cudaStream_t stream) {
  if (rows == 0 || rowElements == 0) return;
  const std::uint64_t rowBytes = rowElements * bytesOf(dtype);
  const bool hasVectors = rowsHaveVectors(out, values, rowBytes);
  RowArguments arguments{.out = out,
                         .values = values,
                         .order = matched.order,
                         .begins = matched.begins,
                         .rows = rows,
                         .entries = entries,
                         .pieces = hasVectors ? rowBytes / kVectorBytes : rowElements};
  arguments.threadsShift = threadsShiftFor(arguments.pieces, kThreads);
  const void* kernel =
      hasVectors ? cuda_device::visitSum(dtype, KernelOf<true>{}) : cuda_device::visitSum(dtype, KernelOf<false>{});
  void* parameters[] = {&arguments};
  const CurrentDevice current(device);
  checkCuda(
      cudaLaunchKernel(kernel, dim3(blocksFor(rows << arguments.threadsShift)), dim3(kThreads), parameters, 0, stream),
      "cudaLaunchKernel", device);
}

}  // namespace fairring
