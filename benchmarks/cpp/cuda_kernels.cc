// The speed of the CUDA kernels beside that of a copy within the device's memory, in turns, on device 0.
//
// Columns: GB/s counts what is read and written, (inputs + 1) times the bytes of one; a copy's twice. of_copy is the
// ratio to the copy measured in the same turns. host_us is the time that enqueueing takes the host, by itself. Times
// are medians of so many turns, by events of the stream; warm-up: one turn.
//
// fairring_cuda_bench [once]: with the word each measurement is one of few bytes, which shows that the program runs.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/cuda_error.h"
#include "base/cuda_memory.h"
#include "base/cuda_runtime.h"
#include "base/cuda_stream.h"
#include "base/loaded_function.h"
#include "kernels/device_sums.h"

namespace fairring {
namespace {

constexpr int kDevice = 0;

struct Amounts {  // of measurements
  int turns = 21;
  std::vector<std::uint64_t> bytes{std::uint64_t{1} << 20, std::uint64_t{25} << 20, std::uint64_t{256} << 20};
};

constexpr std::array kInputs = {2, 4, 8};
constexpr std::array kDTypes = {DType::Float32, DType::BFloat16, DType::Float16, DType::Float64};

cudaError_t (*const cudaEventElapsedTime)(float*, cudaEvent_t, cudaEvent_t) = LoadedFunction("cudaEventElapsedTime");
cudaError_t (*const cudaEventSynchronize)(cudaEvent_t) = LoadedFunction("cudaEventSynchronize");
cudaError_t (*const cudaMemset)(void*, int, std::size_t) = LoadedFunction("cudaMemset");

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Seconds that the stream takes for what is enqueued.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    checkCuda(cudaEventCreateWithFlags(&begin_, 0), "cudaEventCreateWithFlags", kDevice);
    checkCuda(cudaEventCreateWithFlags(&end_, 0), "cudaEventCreateWithFlags", kDevice);
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  double seconds(const std::function<void()>& enqueue) {
    checkCuda(cudaEventRecord(begin_, stream_), "cudaEventRecord", kDevice);
    enqueue();
    checkCuda(cudaEventRecord(end_, stream_), "cudaEventRecord", kDevice);
    checkCuda(cudaEventSynchronize(end_), "cudaEventSynchronize", kDevice);
    float milliseconds = 0;
    checkCuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime", kDevice);
    return milliseconds / 1e3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct Memory {
  explicit Memory(std::uint64_t bytes) : out(deviceMemory(bytes, kDevice)) {
    for (auto& input : inputs) {
      input = deviceMemory(bytes, kDevice);
      checkCuda(cudaMemset(input.get(), 0x3f, bytes), "cudaMemset", kDevice);  // numbers near 1 in every format
    }
    checkCuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize", kDevice);  // ours don't wait for it
  }
  std::shared_ptr<std::byte> out;
  std::array<std::shared_ptr<std::byte>, kInputs.back()> inputs;
};

void measure(DType dtype, int inputCount, std::uint64_t bytes, const Memory& memory, int turns) {
  const CudaStream stream(kDevice);
  const DeviceSums sums(kDevice);
  std::vector<Input> inputs;
  for (int k = 0; k < inputCount; ++k) inputs.push_back({memory.inputs[static_cast<std::size_t>(k)].get()});
  const auto reduce = [&] { sums.enqueue(dtype, memory.out.get(), inputs, bytes / bytesOf(dtype), stream.get()); };
  const auto copy = [&] {
    checkCuda(cudaMemcpyAsync(memory.out.get(), inputs[0].data, bytes, cudaMemcpyDeviceToDevice, stream.get()),
              "cudaMemcpyAsync", kDevice);
  };
  Stopwatch stopwatch(stream.get());
  std::vector<double> reducing;
  std::vector<double> copying;
  std::vector<double> host;
  for (int turn = 0; turn <= turns; ++turn) {
    const double copied = stopwatch.seconds(copy);
    double enqueued = 0;
    const double reduced = stopwatch.seconds([&] {
      const auto begin = std::chrono::steady_clock::now();
      reduce();
      enqueued = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    });
    if (turn == 0) continue;
    copying.push_back(copied);
    reducing.push_back(reduced);
    host.push_back(enqueued);
  }
  const double reduceSpeed = static_cast<double>(bytes) * (inputCount + 1) / median(reducing);
  const double copySpeed = static_cast<double>(bytes) * 2 / median(copying);
  std::printf("%-11s %6d %10llu %9.1f %9.1f %9.1f %8.2f %8.2f\n", name(dtype), inputCount,
              static_cast<unsigned long long>(bytes), median(reducing) * 1e6, reduceSpeed / 1e9, copySpeed / 1e9,
              reduceSpeed / copySpeed, median(host) * 1e6);
}

int run(const Amounts& amounts) {
  if (const std::string reason = LoadedFunction::whyMissing(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 0;
  }
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device here: %s\n", cudaGetErrorString(result));
    return 0;
  }
  int generation = 0;
  checkCuda(cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, kDevice), "cudaDeviceGetAttribute",
            kDevice);
  std::printf("# a device of generation %d, median of %d turns\n", generation, amounts.turns);
  std::printf("%-11s %6s %10s %9s %9s %9s %8s %8s\n", "dtype", "inputs", "bytes", "us", "GB/s", "copy_GB/s", "of_copy",
              "host_us");
  for (const std::uint64_t bytes : amounts.bytes) {
    const Memory memory(bytes);
    for (const DType dtype : kDTypes) {
      for (const int inputs : kInputs) measure(dtype, inputs, bytes, memory, amounts.turns);
    }
  }
  return 0;
}

}  // namespace
}  // namespace fairring

int main(int count, char** arguments) {
  try {
    fairring::Amounts amounts;
    if (count == 2 && std::string_view(arguments[1]) == "once")
      amounts = {.turns = 1, .bytes = {std::uint64_t{64} << 10}};
    return fairring::run(amounts);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
