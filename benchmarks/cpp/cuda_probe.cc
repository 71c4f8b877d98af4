// Probes how this driver and this device treat streams that stand at a gate (base/cuda_stream.h): every property that
// Fairring relies on and that no documentation settles. Needs neither torch nor NCCL. Each question is asked in a child
// process with a time limit, so a question that never ends costs that limit and is reported. The exit code is 1 if a
// question has failed or not ended.
//   fairring_cuda_probe          all questions, in about a minute
//   fairring_cuda_probe NAME     one of them, in this process
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda_driver.h"
#include "base/cuda_error.h"
#include "base/cuda_memory.h"
#include "base/cuda_stream.h"
#include "base/error.h"
#include "base/loaded_function.h"
#include "kernels/device_sums.h"

namespace fairring {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDevice = 0;
constexpr cudaMemcpyKind kAnyWay{4};

cudaError_t (*const cudaMemsetAsync)(void*, int, std::size_t, cudaStream_t) = LoadedFunction("cudaMemsetAsync");
cudaError_t (*const cudaDeviceSynchronize)() = LoadedFunction("cudaDeviceSynchronize");

constexpr unsigned kLimitSeconds = 20;  // of a question
constexpr std::uint64_t kBytes = 4 << 10;
constexpr int kRounds = 300;
constexpr int kGatedStreams = 4;
constexpr int kProgramStreams = 16;
constexpr std::chrono::milliseconds kPatience{200};  // with what does not wait for a gate

double microsecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Words and bytes that streams and the host share, and what streams do with them.
class Bench {
 public:
  std::atomic_ref<std::uint64_t> word(int index) const {
    return std::atomic_ref(reinterpret_cast<std::uint64_t*>(pinned_.get())[8 * index]);
  }
  void hold(const CudaStream& stream, int index, std::uint64_t value) const {
    words_.holdUntil(stream.get(), &reinterpret_cast<const std::uint64_t*>(pinned_.get())[8 * index], value);
  }
  void mark(const CudaStream& stream, int index, std::uint64_t value) const {
    words_.write(stream.get(), &reinterpret_cast<std::uint64_t*>(pinned_.get())[8 * index], value);
  }
  void kernel(const CudaStream& stream) const {
    checkCuda(cudaMemsetAsync(device_.get(), 1, kBytes, stream.get()), "cudaMemsetAsync", kDevice);
  }
  void within(const CudaStream& stream) const { copy(stream, device_.get() + kBytes, device_.get()); }
  void out(const CudaStream& stream) const { copy(stream, pinned_.get() + kBytes, device_.get()); }
  void in(const CudaStream& stream) const { copy(stream, device_.get(), pinned_.get() + kBytes); }
  void outByKernel(const CudaStream& stream) const { copyByKernel(stream, pinned_.get() + kBytes, device_.get()); }
  void inByKernel(const CudaStream& stream) const { copyByKernel(stream, device_.get(), pinned_.get() + kBytes); }

 private:
  static void copy(const CudaStream& stream, void* to, const void* from) {
    checkCuda(cudaMemcpyAsync(to, from, kBytes, kAnyWay, stream.get()), "cudaMemcpyAsync", kDevice);
  }
  void copyByKernel(const CudaStream& stream, void* to, const void* from) const {
    const Input input{from};
    copies_.enqueue(DType::Float64, to, {&input, 1}, kBytes / sizeof(double), stream.get());
  }

  const std::shared_ptr<std::byte> pinned_ = pinnedMemory(2 * kBytes, kDevice);
  const std::shared_ptr<std::byte> device_ = deviceMemory(2 * kBytes, kDevice);
  const StreamWords words_{kDevice};
  const DeviceSums copies_{kDevice};
};

bool within(std::chrono::milliseconds limit, const std::function<bool()>& isSo) {
  for (const auto begin = Clock::now(); Clock::now() - begin < limit;) {
    if (isSo()) return true;
  }
  return isSo();
}

void attributes() {
  const std::pair<const char*, cudaDeviceAttr> wanted[] = {
      {"generation", cudaDevAttrComputeCapabilityMajor},
      {"multiprocessors", cudaDevAttrMultiProcessorCount},
      {"copy engines", cudaDeviceAttr{40}},
      {"preempts compute", cudaDeviceAttr{90}},
      {"host memory has the same addresses", cudaDeviceAttr{41}},
      {"GPUDirect RDMA", cudaDeviceAttr{116}},
      {"GPUDirect RDMA orders writes (0: none, 100: its own, 200: all)", cudaDeviceAttr{118}},
      {"GPUDirect RDMA flushes (1: host, 2: stream)", cudaDeviceAttr{117}},
  };
  for (const auto& [name, attribute] : wanted) {
    int value = -1;
    checkCuda(cudaDeviceGetAttribute(&value, attribute, kDevice), "cudaDeviceGetAttribute", kDevice);
    std::printf("  %s: %d\n", name, value);
  }
  const std::string unusable = StreamWords::unusable(kDevice);
  std::printf("  waits for words of 64 bits: %s\n", unusable.empty() ? "yes" : unusable.c_str());
}

// From when the host opens a gate until it sees what stands behind: what a slice pays at each step on the rails.
void latencies() {
  const Bench bench;
  const CudaStream stream(kDevice);
  std::uint64_t turn = 0;
  const auto measure = [&](const char* what, const std::function<void()>& behind, const std::function<bool()>& isSeen) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      bench.hold(stream, 0, ++turn);
      behind();
      const auto begin = Clock::now();
      bench.word(0) = turn;
      while (!isSeen()) {
      }
      times.push_back(microsecondsSince(begin));
      stream.synchronize();
    }
    std::ranges::sort(times);
    std::printf("  %s: median %.1f us, p99 %.1f us\n", what, times[times.size() / 2], times[times.size() * 99 / 100]);
  };
  const auto isMarked = [&] { return bench.word(1) == turn; };
  measure("a written word", [&] { bench.mark(stream, 1, turn); }, isMarked);
  measure("4 KiB out, a written word", [&] { bench.out(stream), bench.mark(stream, 1, turn); }, isMarked);
  measure(
      "4 KiB in and out by kernels, a written word",
      [&] { bench.inByKernel(stream), bench.outByKernel(stream), bench.mark(stream, 1, turn); }, isMarked);
}

using Work = void (Bench::*)(const CudaStream&) const;

// How many of a program's streams stand still while work of ours stands at gates in other streams.
void queues() {
  const Bench bench;
  std::vector<CudaStream> gated;
  std::vector<CudaStream> others;
  while (gated.size() < kGatedStreams) gated.emplace_back(kDevice);
  while (others.size() < kProgramStreams) others.emplace_back(kDevice);
  const std::pair<const char*, Work> ours[] = {
      {"nothing", nullptr},
      {"a kernel", &Bench::kernel},
      {"a copy within", &Bench::within},
      {"a copy in", &Bench::in},
      {"a copy out", &Bench::out},
      {"a kernel that copies in", &Bench::inByKernel},
      {"a kernel that copies out", &Bench::outByKernel},
  };
  const std::pair<const char*, Work> programs[] = {{"kernels", &Bench::kernel},
                                                   {"copies within", &Bench::within},
                                                   {"copies out", &Bench::out},
                                                   {"copies in", &Bench::in}};
  std::uint64_t turn = 0;
  const auto stuck = [&](Work ourWork, Work work) {
    ++turn;
    for (const CudaStream& stream : gated) {
      bench.hold(stream, 0, turn);
      if (ourWork != nullptr) (bench.*ourWork)(stream);
    }
    for (int i = 0; i < kProgramStreams; ++i) {
      const CudaStream& stream = others[static_cast<std::size_t>(i)];
      (bench.*work)(stream);
      bench.mark(stream, 2 + i, turn);
    }
    const auto late = [&] {
      int count = 0;
      for (int i = 0; i < kProgramStreams; ++i) count += bench.word(2 + i) < turn ? 1 : 0;
      return count;
    };
    within(kPatience, [&] { return late() == 0; });
    const int count = late();
    bench.word(0) = turn;
    for (const CudaStream& stream : gated) stream.synchronize();
    for (const CudaStream& stream : others) stream.synchronize();
    return count;
  };
  for (const auto& [behind, ourWork] : ours) {
    std::printf("  %s at the gate: of %d streams stand still", behind, kProgramStreams);
    for (const auto& [what, work] : programs) std::printf(", %s: %d", what, stuck(ourWork, work));
    std::printf("\n");
  }
}

// As the package has it, where nobody has said otherwise.
void queuesOf32() {
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  queues();
}

// Whether the host is told of a stream's work while another thread is in a call that waits for the device, which stands
// at a gate; and whether a third thread can enqueue anything then.
void locks(const char* name, const std::function<void()>& call) {
  const Bench bench;
  const CudaStream stream(kDevice);
  const CudaStream telling(kDevice);
  const CudaStream third(kDevice);
  bench.hold(stream, 0, 1);
  bench.hold(telling, 3, 1);
  bench.mark(telling, 1, 1);
  std::atomic<bool> hasReturned{false};
  std::atomic<bool> hasEnqueued{false};
  std::thread calling([&] { call(), hasReturned = true; });
  std::this_thread::sleep_for(kPatience);  // for the call to be inside the driver; a probe of times, not a test
  const bool waits = !hasReturned;
  bench.word(3) = 1;
  const bool seen = within(kPatience, [&] { return bench.word(1) == 1; });
  std::thread enqueuing([&] { bench.kernel(third), hasEnqueued = true; });
  const bool enqueues = within(kPatience, [&] { return hasEnqueued.load(); });
  bench.word(0) = 1;
  calling.join();
  enqueuing.join();
  stream.synchronize();
  std::printf("  during %s (%s), a written word: %s; another thread's launch: %s\n", name,
              waits ? "waits" : "does not wait", seen ? "comes" : "does not come before the gate opens",
              enqueues ? "returns" : "does not return before the gate opens");
}

void locksOfFree() {
  locks("cudaMalloc and cudaFree", [] { deviceMemory(1 << 20, kDevice).reset(); });
}
void locksOfPinned() {
  locks("cudaHostAlloc and cudaFreeHost", [] { pinnedMemory(1 << 20, kDevice).reset(); });
}
void locksOfStreams() {
  locks("cudaStreamCreate", [] { const CudaStream stream(kDevice); });
}
void locksOfSynchronize() {
  locks("cudaDeviceSynchronize", [] { checkCuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize", kDevice); });
}

// Copies between pinned memory and the device's, alone and both ways at once.
void bandwidth() {
  constexpr std::uint64_t kLarge = 64 << 20;
  constexpr int kTimes = 10;
  const auto host = pinnedMemory(2 * kLarge, kDevice);
  const auto device = deviceMemory(2 * kLarge, kDevice);
  const CudaStream outward(kDevice);
  const CudaStream inward(kDevice);
  const DeviceSums kernel(kDevice);
  const auto copyOf = [&](bool byKernel, std::byte* to, const std::byte* from, const CudaStream& stream) {
    const Input input{from};
    if (byKernel) return kernel.enqueue(DType::Float64, to, {&input, 1}, kLarge / sizeof(double), stream.get());
    checkCuda(cudaMemcpyAsync(to, from, kLarge, kAnyWay, stream.get()), "cudaMemcpyAsync", kDevice);
  };
  const auto measure = [&](const char* what, bool byKernel, bool out, bool in) {
    const auto begin = Clock::now();
    for (int time = 0; time < kTimes; ++time) {
      if (out) copyOf(byKernel, host.get(), device.get(), outward);
      if (in) copyOf(byKernel, device.get() + kLarge, host.get() + kLarge, inward);
    }
    outward.synchronize();
    inward.synchronize();
    const double bytes = static_cast<double>(kLarge) * kTimes;
    std::printf("  %s: %.1f GB/s each way\n", what, bytes / microsecondsSince(begin) / 1e3);
  };
  measure("warm-up", false, true, true);
  measure("out", false, true, false);
  measure("in", false, false, true);
  measure("out and in", false, true, true);
  measure("out by kernels", true, true, false);
  measure("in by kernels", true, false, true);
  measure("out and in by kernels", true, true, true);
}

struct Question {
  const char* name;
  void (*ask)();
};

constexpr Question kQuestions[] = {
    {"attributes", attributes},
    {"latencies", latencies},
    {"queues", queues},
    {"queues-of-32", queuesOf32},
    {"locks-of-free", locksOfFree},
    {"locks-of-pinned", locksOfPinned},
    {"locks-of-streams", locksOfStreams},
    {"locks-of-synchronize", locksOfSynchronize},
    {"bandwidth", bandwidth},
};

int ask(const Question& question) {
  try {
    question.ask();
    return 0;
  } catch (const Failure& failure) {
    std::printf("  failed: %s\n", failure.error().text().c_str());
    return 1;
  }
}

// In a child, for CUDA can't be used in a process that was forked after it had used it.
bool askApart(const Question& question) {
  std::printf("%s\n", question.name);
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(kLimitSeconds);
    const int result = ask(question);
    std::fflush(stdout);
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    std::printf("  did not end within %u s\n", kLimitSeconds);
  else if (WIFSIGNALED(status))
    std::printf("  ended by signal %d\n", WTERMSIG(status));
  return status == 0;
}

}  // namespace
}  // namespace fairring

int main(int arguments, char** words) {
  using namespace fairring;
  if (const std::string reason = LoadedFunction::whyMissing(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 0;
  }
  if (arguments > 1) {
    const auto* found =
        std::ranges::find_if(kQuestions, [&](const Question& q) { return !std::strcmp(q.name, words[1]); });
    return found == std::end(kQuestions) ? 2 : ask(*found);
  }
  bool allWell = true;
  for (const Question& question : kQuestions) allWell = askApart(question) && allWell;
  return allWell ? 0 : 1;
}
