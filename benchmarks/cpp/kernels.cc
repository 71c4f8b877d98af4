// The speed of reduce() for every operation and dtype, beside memcpy in the same loop, and of quantizing.
//
// In reduce(), two inputs, one output, all apart. bytes_per_second counts what is read and written, three times the
// size of an input; memcpy's twice. of_memcpy is the ratio of the two. Times are those of the thread's processor, so
// that other programs on the machine count little; the memory they use still does.
#include <benchmark/benchmark.h>
#include <time.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/loops.h"
#include "kernels/quantized.h"
#include "kernels/reduce.h"

namespace fairring {
namespace {

constexpr DType kDTypes[] = {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int8,
                             DType::Int16,   DType::Int32,   DType::Int64,    DType::UInt8,   DType::UInt16,
                             DType::UInt32,  DType::UInt64,  DType::Bool};

struct Row {
  const char* name;
  Op op;
  bool average = false;  // a factor for floats, a divisor for integers
};

constexpr Row kRows[] = {{"SUM", Op::Sum}, {"AVG", Op::Sum, true}, {"PRODUCT", Op::Product}, {"MIN", Op::Min},
                         {"MAX", Op::Max}, {"BAND", Op::BitAnd},   {"BOR", Op::BitOr},       {"BXOR", Op::BitXor}};

constexpr std::size_t kSizes[] = {256 << 10, 8 << 20};  // bytes of an input: in the second cache, and beyond all

double processorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void measure(benchmark::State& state, const Row& row, DType dtype, std::size_t bytes) {
  // Such bytes are floats between 0.0001 and 2 in every format: no denormals, not in products either.
  std::vector<unsigned char> first(bytes, 0x3f);
  std::vector<unsigned char> second(bytes, 0x3f);
  std::vector<unsigned char> out(bytes);
  const double scale = row.average && isFloat(dtype) ? 0.5 : 1.0;
  const Input inputs[] = {{first.data(), scale}, {second.data(), scale}};
  const Reduction reduction{.dtype = dtype, .op = row.op, .divisor = row.average && !isFloat(dtype) ? 2 : 1};
  double copying = 0;
  double reducing = 0;
  for ([[maybe_unused]] auto iteration : state) {
    const double begin = processorSeconds();
    std::memcpy(out.data(), first.data(), bytes);
    benchmark::ClobberMemory();
    const double copied = processorSeconds();
    reduce(reduction, out.data(), inputs, bytes / bytesOf(dtype));
    benchmark::ClobberMemory();
    const double reduced = processorSeconds();
    copying += copied - begin;
    reducing += reduced - copied;
    state.SetIterationTime(reduced - copied);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(3 * bytes * static_cast<std::size_t>(state.iterations())));
  state.counters["of_memcpy"] = (3 / reducing) / (2 / copying);
}

// bytes_per_second counts those of fp32. Encoding keeps the errors.
void measureQuantizing(benchmark::State& state, Quantization kind, bool encodes, std::size_t bytes) {
  const std::size_t elements = bytes / sizeof(float);
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(i % 1009) - 500;
  std::vector<float> lost(elements);
  std::vector<std::byte> encoded(quantizedBytes(kind, elements));
  quantize(kind, values.data(), encoded.data(), lost.data(), elements);
  for ([[maybe_unused]] auto iteration : state) {
    const double begin = processorSeconds();
    if (encodes) {
      quantize(kind, values.data(), encoded.data(), lost.data(), elements);
    } else {
      dequantize(kind, encoded.data(), values.data(), elements);
    }
    benchmark::ClobberMemory();
    state.SetIterationTime(processorSeconds() - begin);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes * static_cast<std::size_t>(state.iterations())));
}

void registerQuantizing() {
  for (const std::size_t bytes : kSizes) {
    for (const Quantization kind : {Quantization::Int8, Quantization::Int4}) {
      for (const bool encodes : {true, false}) {
        const std::string title = std::string(encodes ? "QUANTIZE/" : "DEQUANTIZE/") +
                                  (kind == Quantization::Int8 ? "Int8/" : "Int4/") + std::to_string(bytes >> 10) +
                                  "KiB";
        benchmark::RegisterBenchmark(
            title.c_str(),
            [kind, encodes, bytes](benchmark::State& state) { measureQuantizing(state, kind, encodes, bytes); })
            ->UseManualTime()
            ->MinTime(0.05);
      }
    }
  }
}

void registerAll() {
  for (const std::size_t bytes : kSizes) {
    for (const Row& row : kRows) {
      for (const DType dtype : kDTypes) {
        if (!isDefined(row.op, dtype) || (row.average && dtype == DType::Bool)) continue;
        const std::string title = std::string(row.name) + "/" + name(dtype) + "/" + std::to_string(bytes >> 10) + "KiB";
        benchmark::RegisterBenchmark(
            title.c_str(), [&row, dtype, bytes](benchmark::State& state) { measure(state, row, dtype, bytes); })
            ->UseManualTime()
            ->MinTime(0.05);
      }
    }
  }
}

}  // namespace
}  // namespace fairring

int main(int argumentCount, char** arguments) {
  benchmark::Initialize(&argumentCount, arguments);
  if (benchmark::ReportUnrecognizedArguments(argumentCount, arguments)) return 1;
  benchmark::AddCustomContext("instruction set", fairring::runnableIsas().back().name);
  fairring::registerAll();
  fairring::registerQuantizing();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
