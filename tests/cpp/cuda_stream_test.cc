// The properties of a device that the gated chain relies on: gates, calls from streams, and that a shut gate does not
// keep a thread from opening it. If a device lacks one, the test hangs until its time limit ends it.
#include "base/cuda_stream.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "cuda_device.h"
#include "kernels/device_kernel.h"

namespace fairring {
namespace {

// Calls that the tests alone make.
struct Graph;
const cudaError_t cudaErrorNotReady{600};
const cudaStreamCaptureMode cudaStreamCaptureModeGlobal{0};
cudaError_t (*const cudaStreamQuery)(cudaStream_t) = LoadedFunction("cudaStreamQuery");
cudaError_t (*const cudaDeviceSynchronize)() = LoadedFunction("cudaDeviceSynchronize");
cudaError_t (*const cudaMemsetAsync)(void*, int, std::size_t, cudaStream_t) = LoadedFunction("cudaMemsetAsync");
cudaError_t (*const cudaStreamCreateWithFlags)(cudaStream_t*, unsigned) = LoadedFunction("cudaStreamCreateWithFlags");
cudaError_t (*const cudaStreamBeginCapture)(cudaStream_t,
                                            cudaStreamCaptureMode) = LoadedFunction("cudaStreamBeginCapture");
cudaError_t (*const cudaStreamEndCapture)(cudaStream_t, Graph**) = LoadedFunction("cudaStreamEndCapture");
cudaError_t (*const cudaGraphDestroy)(Graph*) = LoadedFunction("cudaGraphDestroy");

class CudaStreams : public testing::Test {
 protected:
  void SetUp() override {
    skipWithoutDevice();
    if (IsSkipped()) return;
    const std::string reason = StreamWords::unusable(kDevice);
    if (!reason.empty()) GTEST_SKIP() << reason;
    memory_ = pinnedMemory(4096, kDevice);
    word_ = reinterpret_cast<std::uint64_t*>(memory_.get());
    words_ = std::make_unique<StreamWords>(kDevice);
  }

  void open(std::uint64_t value) { std::atomic_ref(*word_).store(value, std::memory_order_release); }
  std::uint64_t* word() { return word_; }
  std::byte* pinned() { return memory_.get() + 64; }  // beside the word
  const StreamWords& words() const { return *words_; }

  // Done when the stream has come this far.
  static std::future<void> reached(const CudaStream& stream) {
    return std::async(std::launch::async, [&stream] { stream.synchronize(); });
  }
  // Then what comes after a gate waits for it, whatever the stream.
  static bool hasOneQueue() {
    const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    return queues != nullptr && std::string_view(queues) == "1";
  }
  static bool isDone(const std::future<void>& future) {
    return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  std::shared_ptr<std::byte> memory_;
  std::uint64_t* word_ = nullptr;
  std::unique_ptr<StreamWords> words_;
};

TEST_F(CudaStreams, StandAtAGateUntilItsWordHasCountedUp) {
  const CudaStream stream(kDevice);
  words().holdUntil(stream.get(), word(), 5);
  const auto behind = reached(stream);
  open(4);
  // Another stream can't be waited for here: with a single hardware queue it queues behind the gate too.
  for (int look = 0; look < 1000; ++look) ASSERT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  EXPECT_FALSE(isDone(behind));
  open(6);
  behind.wait();
}

TEST_F(CudaStreams, SeeBehindAGateWhatWasWrittenBefore) {
  const CudaStream stream(kDevice);
  const auto device = deviceMemory(64, kDevice);
  for (std::uint64_t turn = 1; turn <= 1000; ++turn) {
    words().holdUntil(stream.get(), word(), turn);
    checkCuda(cudaMemcpyAsync(device.get(), pinned(), 64, cudaMemcpyHostToDevice, stream.get()), "copy", kDevice);
    checkCuda(cudaMemcpyAsync(pinned() + 64, device.get(), 64, cudaMemcpyDeviceToHost, stream.get()), "copy", kDevice);
    const auto done = reached(stream);
    std::memset(pinned(), static_cast<int>(turn & 0xff), 64);
    open(turn);
    done.wait();
    for (int i = 0; i < 64; ++i) ASSERT_EQ(std::to_integer<std::uint64_t>(pinned()[64 + i]), turn & 0xff) << turn;
  }
}

TEST_F(CudaStreams, WriteAWordBehindWhatTheyHaveCopiedToTheHost) {
  const CudaStream stream(kDevice);
  const auto device = deviceMemory(64, kDevice);
  for (std::uint64_t turn = 1; turn <= 1000; ++turn) {
    checkCuda(cudaMemsetAsync(device.get(), static_cast<int>(turn & 0xff), 64, stream.get()), "memset", kDevice);
    checkCuda(cudaMemcpyAsync(pinned(), device.get(), 64, cudaMemcpyDeviceToHost, stream.get()), "copy", kDevice);
    words().write(stream.get(), word(), turn);
    while (std::atomic_ref(*word()).load(std::memory_order_acquire) < turn) std::this_thread::yield();
    for (int i = 0; i < 64; ++i) ASSERT_EQ(std::to_integer<std::uint64_t>(pinned()[i]), turn & 0xff) << turn;
  }
}

// Its current device is the first one without a call of CUDA's, and yet it has no context, which the driver asks for.
TEST_F(CudaStreams, AreSentToAGateByAThreadThatHasNotCalledCudaBefore) {
  const CudaStream stream(kDevice);
  std::thread([&] { words().holdUntil(stream.get(), word(), 1); }).join();
  std::thread([&] { words().write(stream.get(), word() + 1, 7); }).join();
  open(1);
  stream.synchronize();
  EXPECT_EQ(std::atomic_ref(word()[1]).load(std::memory_order_acquire), 7U);
}

TEST_F(CudaStreams, OpenForAValueFarBeyond) {
  const CudaStream stream(kDevice);
  words().holdUntil(stream.get(), word(), 3);
  open(std::uint64_t{1} << 62);  // as an abort does
  reached(stream).wait();
}

TEST_F(CudaStreams, HoldBackOneAnotherByEvents) {
  const CudaStream first(kDevice);
  const CudaStream second(kDevice);
  words().holdUntil(first.get(), word(), 1);
  CudaEvent event(kDevice);
  event.record(first.get());
  event.holdBack(second.get());
  const auto behind = reached(second);
  EXPECT_FALSE(isDone(behind));
  open(1);
  behind.wait();
}

TEST_F(CudaStreams, AnEventIsUsedAgainWhenNobodyHoldsItAndWhoWaitsAlreadyWaitsOn) {
  const CudaStream first(kDevice);
  const CudaStream second(kDevice);
  const CudaStream free(kDevice);
  CudaEventPool pool(kDevice);
  words().holdUntil(first.get(), word(), 1);
  auto event = pool.record(first.get());
  const CudaEvent* const used = event.get();
  EXPECT_NE(pool.record(free.get()).get(), used) << "it is held";
  event->holdBack(second.get());
  event.reset();
  EXPECT_EQ(pool.record(free.get()).get(), used);
  const auto behind = reached(second);
  if (!hasOneQueue()) free.synchronize();
  EXPECT_FALSE(isDone(behind));
  open(1);
  behind.wait();
}

// Each of these waits for the device, and so for the gate, which is opened by a thread that makes no call of CUDA.
TEST_F(CudaStreams, LetWhoWaitsForTheDeviceWaitWithoutHoldingUpWhoOpens) {
  const CudaStream stream(kDevice);
  std::uint64_t turn = 0;
  const auto waits = [&](auto call) {
    ++turn;
    words().holdUntil(stream.get(), word(), turn);
    std::atomic<bool> begun{false};
    std::thread waiting([&] {
      begun = true;
      begun.notify_all();
      call();
    });
    begun.wait(false);
    open(turn);
    waiting.join();
    stream.synchronize();
  };
  waits([] { EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess); });
  waits([] {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  });
  waits([] { pinnedMemory(1 << 20, kDevice).reset(); });
  waits([] { const DeviceKernel loaded("fairring_sum_Float64", kDevice); });
}

TEST_F(CudaStreams, AreMadeAndUsedWhileAnotherThreadCapturesAGraph) {
  cudaStream_t captured = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] {
    const CudaStream stream(kDevice);
    const auto memory = deviceMemory(64, kDevice);
    words().holdUntil(stream.get(), word(), 1);
    CudaEvent event(kDevice);
    event.record(stream.get());
    const auto done = reached(stream);
    open(1);
    done.wait();
    stream.synchronize();
  }).join();
  Graph* graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess) << "the capture was disturbed";
  cudaGraphDestroy(graph);
  cudaStreamDestroy(captured);
}

TEST_F(CudaStreams, ReportWhatCudaRefusesWithTheCallAndTheDevice) {
  try {
    deviceMemory(std::uint64_t{1} << 60, kDevice);
    FAIL() << "an exbibyte was given out";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error().kind(), ErrorKind::System);
    EXPECT_NE(failure.error().text().find("cudaMalloc on CUDA device 0"), std::string::npos) << failure.what();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the error was left for others to find";
}

}  // namespace
}  // namespace fairring
