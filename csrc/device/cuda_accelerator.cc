#include "device/cuda_accelerator.h"

#include <cassert>
#include <vector>

#include "base/cuda_error.h"
#include "base/cuda_memory.h"
#include "base/cuda_stream.h"
#include "device/level_zero.h"
#include "kernels/device_kernel.h"
#include "kernels/device_poison.h"
#include "kernels/device_sums.h"

namespace fairring {
namespace {

constexpr std::size_t kStreams = 4;  // as many slices as the planner wants in flight

cudaStream_t cudaStreamOf(Accelerator::Stream stream) { return static_cast<cudaStream_t>(stream); }

std::vector<CudaStream> makeStreams(int device) {
  std::vector<CudaStream> streams;
  while (streams.size() < kStreams) streams.emplace_back(device);
  return streams;
}

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator(const NcclPlace& place, const NcclRanks& machine, const NcclPatience& patience)
      : device_(place.device),
        memory_(device_),
        words_(device_),
        events_(device_),
        sums_(device_),
        poison_(device_),
        streams_(makeStreams(device_)),
        levelZero_(place, machine.fromFirst, patience, sums_) {}

  ~CudaAccelerator() override {
    try {
      for (const CudaStream& stream : streams_) stream.synchronize();
    } catch (const Failure&) {
      return;  // the device has an error, which every call of the process reports: nothing runs there any more
    }
  }

  std::size_t streams() const override { return streams_.size(); }
  Stream stream(std::size_t index) override { return streams_.at(index).get(); }

  Memory pinned(std::uint64_t bytes) override { return memory_.pinned(bytes); }
  Memory device(std::uint64_t bytes) override { return memory_.device(bytes); }

  Event record(Stream stream) override { return events_.record(cudaStreamOf(stream)); }
  void wait(Stream stream, const Event& event) override {
    static_cast<const CudaEvent*>(event.get())->holdBack(cudaStreamOf(stream));
  }

  void copyOut(Stream stream, void* host, const void* device, std::uint64_t bytes) override {
    copy(stream, host, device, bytes, cudaMemcpyDeviceToHost);
  }
  void copyIn(Stream stream, void* device, const void* host, std::uint64_t bytes) override {
    copy(stream, device, host, bytes, cudaMemcpyHostToDevice);
  }
  void reduce(Stream stream, const Reduction& reduction, void* out, std::span<const Input> inputs,
              std::uint64_t elements) override {
    sums_.enqueue(reduction.dtype, out, inputs, elements, cudaStreamOf(stream));
  }

  void gate(Stream stream, const Word* word, Word atLeast) override {
    words_.holdUntil(cudaStreamOf(stream), word, atLeast);
  }
  void write(Stream stream, Word* word, Word value) override { words_.write(cudaStreamOf(stream), word, value); }

  void poisonIf(Stream stream, const Word* word, Results results) override {
    poison_.enqueue(word, results, cudaStreamOf(stream));
  }

  void reduceScatter(Stream stream, const Slice& slice) override {
    levelZero_.reduceScatter(cudaStreamOf(stream), slice);
  }
  void allGather(Stream stream, const Slice& slice) override { levelZero_.allGather(cudaStreamOf(stream), slice); }
  void load(Stream stream, const Slice& slice) override { levelZero_.load(cudaStreamOf(stream), slice); }
  void store(Stream stream, const Slice& slice) override { levelZero_.store(cudaStreamOf(stream), slice); }

  void abort() noexcept override { levelZero_.abort(); }

 private:
  void copy(Stream stream, void* to, const void* from, std::uint64_t bytes, cudaMemcpyKind kind) const {
    if (bytes == 0) return;
    const CurrentDevice current(device_);
    checkCuda(cudaMemcpyAsync(to, from, bytes, kind, cudaStreamOf(stream)), "cudaMemcpyAsync", device_);
  }

  const int device_;
  CudaMemoryPool memory_;
  const StreamWords words_;
  CudaEventPool events_;
  const DeviceSums sums_;
  const DevicePoison poison_;
  const std::vector<CudaStream> streams_;
  LevelZero levelZero_;
};

}  // namespace

std::string whyNoCudaAccelerator(int device) {
  std::string obstacle = DeviceKernel::obstacle(device);
  return obstacle.empty() ? StreamWords::unusable(device) : obstacle;
}

std::unique_ptr<Accelerator> makeCudaAccelerator(int device, int rank, const NcclRanks& machine,
                                                 const NcclPatience& patience, const NcclLimits& limits) {
  assert(machine.index >= 0 && machine.index < machine.count);
  const NcclPlace place{.rank = machine.index,
                        .ranks = machine.count,
                        .device = device,
                        .who = concat("rank ", rank, ", on CUDA device ", device),
                        .limits = limits};
  return std::make_unique<CudaAccelerator>(place, machine, patience);
}

}  // namespace fairring
