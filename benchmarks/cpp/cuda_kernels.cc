// The speed of the CUDA kernels beside that of a copy within the device's memory, in turns, on device 0.
//
// Columns: GB/s counts what is read and written, (inputs + 1) times the bytes of one; a copy's twice. of_copy is the
// ratio to the copy measured in the same turns. host_us is the time that enqueueing takes the host, by itself. Times
// are medians of so many turns, by events of the stream; warm-up: one turn.
//
// Then rows with keys: match_us finds which have the same, sum_us adds them up. Their GB/s counts the rows that are
// read and those that are written.
//
// fairring_cuda_bench [once]: with the word each measurement is one of few bytes, which shows that the program runs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "base/cuda_error.h"
#include "base/cuda_memory.h"
#include "base/cuda_stream.h"
#include "kernels/device_reduction.h"
#include "kernels/device_rows.h"

namespace fairring {
namespace {

constexpr int kDevice = 0;

struct Amounts {  // of measurements
  int turns = 21;
  std::vector<std::uint64_t> bytes{std::uint64_t{1} << 20, std::uint64_t{25} << 20, std::uint64_t{256} << 20};
  std::uint64_t entries = 50'000;  // of rows
};

constexpr std::array kInputs = {2, 4, 8};
constexpr std::array kRows = {std::pair{Op::Sum, DType::Float32}, std::pair{Op::Sum, DType::BFloat16},
                              std::pair{Op::Sum, DType::Float16}, std::pair{Op::Sum, DType::Float64},
                              std::pair{Op::Sum, DType::Int64},   std::pair{Op::Sum, DType::Float8E4M3},
                              std::pair{Op::Max, DType::BFloat16}};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Seconds that the stream takes for what is enqueued.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    checkCuda(cudaEventCreate(&begin_), "cudaEventCreate", kDevice);
    checkCuda(cudaEventCreate(&end_), "cudaEventCreate", kDevice);
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
    checkCuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize", kDevice);  // ours don't wait for it
  }
  std::shared_ptr<std::byte> out;
  std::array<std::shared_ptr<std::byte>, kInputs.back()> inputs;
};

void measure(Op op, DType dtype, int inputCount, std::uint64_t bytes, const Memory& memory, int turns) {
  const CudaStream stream(kDevice);
  const DeviceReduction reduction(dtype, op, kDevice);
  std::vector<Input> inputs;
  for (int k = 0; k < inputCount; ++k) inputs.push_back({memory.inputs[static_cast<std::size_t>(k)].get()});
  const auto reduce = [&] { reduction.enqueue(memory.out.get(), inputs, bytes / bytesOf(dtype), 1, stream.get()); };
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
  std::printf("%-4s %-11s %6d %10llu %9.1f %9.1f %9.1f %8.2f %8.2f\n", op == Op::Sum ? "SUM" : "MAX", name(dtype),
              inputCount, static_cast<unsigned long long>(bytes), median(reducing) * 1e6, reduceSpeed / 1e9,
              copySpeed / 1e9, reduceSpeed / copySpeed, median(host) * 1e6);
}

constexpr std::uint64_t kRowElements = 2048;
constexpr std::array kKeysBelow = {std::uint64_t{5'000'000}, std::uint64_t{5'000}};  // few of one key; ten of each
constexpr std::array kRowDTypes = {DType::Float32, DType::BFloat16};

// Entries with random keys, and memory for what comes of them.
struct Rows {
  Rows(DType dtype, std::uint64_t keysBelow, std::uint64_t entries)
      : rowBytes(kRowElements * bytesOf(dtype)),
        keys(deviceMemory(entries * sizeof(std::uint64_t), kDevice)),
        unique(deviceMemory(entries * sizeof(std::uint64_t), kDevice)),
        begins(deviceMemory(entries * sizeof(std::uint32_t), kDevice)),
        order(deviceMemory(entries * sizeof(std::uint32_t), kDevice)),
        count(deviceMemory(sizeof(std::uint64_t), kDevice)),
        scratch(deviceMemory(matchScratchBytes(entries, kDevice), kDevice)),
        values(deviceMemory(entries * rowBytes, kDevice)),
        out(deviceMemory(entries * rowBytes, kDevice)) {
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> drawn(entries);
    for (std::uint64_t& key : drawn) key = random() % keysBelow;
    checkCuda(cudaMemcpy(keys.get(), drawn.data(), entries * sizeof(std::uint64_t), cudaMemcpyHostToDevice),
              "cudaMemcpy", kDevice);
    checkCuda(cudaMemset(values.get(), 0x3f, entries * rowBytes), "cudaMemset", kDevice);
    checkCuda(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize", kDevice);  // ours don't wait for it
  }

  MatchedRows matched() const {
    return {.keys = reinterpret_cast<std::uint64_t*>(unique.get()),
            .begins = reinterpret_cast<std::uint32_t*>(begins.get()),
            .order = reinterpret_cast<std::uint32_t*>(order.get()),
            .count = reinterpret_cast<std::uint64_t*>(count.get())};
  }

  std::uint64_t rowBytes;
  std::shared_ptr<std::byte> keys, unique, begins, order, count, scratch, values, out;
};

void measureRows(DType dtype, std::uint64_t keysBelow, const Amounts& amounts) {
  const std::uint64_t entries = amounts.entries;
  const Rows rows(dtype, keysBelow, entries);
  const CudaStream stream(kDevice);
  Stopwatch stopwatch(stream.get());
  std::uint64_t count = 0;
  std::vector<double> copying;
  std::vector<double> matching;
  std::vector<double> summing;
  for (int turn = 0; turn <= amounts.turns; ++turn) {
    const double copied = stopwatch.seconds([&] {
      checkCuda(cudaMemcpyAsync(rows.out.get(), rows.values.get(), entries * rows.rowBytes, cudaMemcpyDeviceToDevice,
                                stream.get()),
                "cudaMemcpyAsync", kDevice);
    });
    const double matched = stopwatch.seconds([&] {
      matchRows(rows.matched(), reinterpret_cast<const std::uint64_t*>(rows.keys.get()), entries, keysBelow,
                rows.scratch.get(), kDevice, stream.get());
    });
    checkCuda(cudaMemcpy(&count, rows.count.get(), sizeof count, cudaMemcpyDeviceToHost), "cudaMemcpy", kDevice);
    const double summed = stopwatch.seconds([&] {
      sumRows(dtype, rows.out.get(), rows.values.get(), kRowElements, rows.matched(), count, entries, kDevice,
              stream.get());
    });
    if (turn == 0) continue;
    copying.push_back(copied);
    matching.push_back(matched);
    summing.push_back(summed);
  }
  const double sumSpeed = static_cast<double>((entries + count) * rows.rowBytes) / median(summing);
  const double copySpeed = static_cast<double>(2 * entries * rows.rowBytes) / median(copying);
  std::printf("%-11s %8llu %8llu %6llu %9.1f %9.1f %9.1f %9.1f %8.2f\n", name(dtype),
              static_cast<unsigned long long>(entries), static_cast<unsigned long long>(count),
              static_cast<unsigned long long>(kRowElements), median(matching) * 1e6, median(summing) * 1e6,
              sumSpeed / 1e9, copySpeed / 1e9, sumSpeed / copySpeed);
}

void measureAllRows(const Amounts& amounts) {
  std::printf("\n%-11s %8s %8s %6s %9s %9s %9s %9s %8s\n", "dtype", "entries", "unique", "width", "match_us", "sum_us",
              "GB/s", "copy_GB/s", "of_copy");
  for (const std::uint64_t keysBelow : kKeysBelow) {
    for (const DType dtype : kRowDTypes) measureRows(dtype, keysBelow, amounts);
  }
}

int run(const Amounts& amounts) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device here: %s\n", cudaGetErrorString(result));
    return 0;
  }
  cudaDeviceProp properties;
  checkCuda(cudaGetDeviceProperties(&properties, kDevice), "cudaGetDeviceProperties", kDevice);
  std::printf("# %s, sm_%d%d, median of %d turns\n", properties.name, properties.major, properties.minor,
              amounts.turns);
  std::printf("%-4s %-11s %6s %10s %9s %9s %9s %8s %8s\n", "op", "dtype", "inputs", "bytes", "us", "GB/s", "copy_GB/s",
              "of_copy", "host_us");
  for (const std::uint64_t bytes : amounts.bytes) {
    const Memory memory(bytes);
    for (const auto& [op, dtype] : kRows) {
      for (const int inputs : kInputs) measure(op, dtype, inputs, bytes, memory, amounts.turns);
    }
  }
  measureAllRows(amounts);
  return 0;
}

}  // namespace
}  // namespace fairring

int main(int count, char** arguments) {
  try {
    fairring::Amounts amounts;
    if (count == 2 && std::string_view(arguments[1]) == "once")
      amounts = {.turns = 1, .bytes = {std::uint64_t{64} << 10}, .entries = 100};
    return fairring::run(amounts);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
