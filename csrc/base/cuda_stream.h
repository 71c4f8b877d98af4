// CUDA streams and events that end with their owners, and the means to make a stream wait.
// Any thread; a failure is thrown as a Failure that names the call and the device.
//
// While another thread captures a graph in the global mode, CUDA forbids this thread all calls that may synchronise.
// The capture has nothing to do with the work here: CaptureUnheeded lifts the restriction for a scope, and calls
// nothing within another such scope.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/cuda_runtime.h"

namespace fairring {

class CaptureUnheeded {
 public:
  CaptureUnheeded();
  ~CaptureUnheeded();
  CaptureUnheeded(const CaptureUnheeded&) = delete;
  CaptureUnheeded& operator=(const CaptureUnheeded&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A stream of the device's highest priority that is not ordered with the legacy default stream. Because of the
// priority, kernels of ordinary priority do not queue behind our gates.
class CudaStream {
 public:
  explicit CudaStream(int device);
  ~CudaStream();
  CudaStream(CudaStream&& other) noexcept;
  CudaStream& operator=(CudaStream&&) = delete;

  cudaStream_t get() const { return stream_; }
  void synchronize() const;  // the host waits for all enqueued work

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
};

// A point in a stream, for other streams to wait for. It takes no time.
class CudaEvent {
 public:
  explicit CudaEvent(int device);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(cudaStream_t stream);          // the stream's present end; earlier waits keep the earlier point
  void holdBack(cudaStream_t stream) const;  // until the point is reached

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

// Events for reuse once they have no holder: making or destroying one takes the context's lock.
class CudaEventPool {
 public:
  explicit CudaEventPool(int device) : device_(device), idle_(std::make_shared<Idle>()) {}

  std::shared_ptr<CudaEvent> record(cudaStream_t stream);

 private:
  struct Idle {
    std::mutex mutex;
    std::vector<std::unique_ptr<CudaEvent>> events;  // guarded by mutex
  };

  const int device_;
  const std::shared_ptr<Idle> idle_;  // outlives the pool if an event does
};

// Words in memory that a stream waits for or writes: operations of the driver, looked up in the driver that the process
// has loaded.
class StreamWords {
 public:
  explicit StreamWords(int device);  // throws Failure(Configuration) if unusable() has a reason

  // The reason why a stream of this device can't do this with words of 64 bits; empty if it can.
  static std::string unusable(int device);

  // Holds the stream until *word, in pinnedMemory(), has reached the value.
  void holdUntil(cudaStream_t stream, const std::uint64_t* word, std::uint64_t atLeast) const;

  // Writes the word, in pinnedMemory(), when all work enqueued before is complete and its results are visible to the
  // host.
  void write(cudaStream_t stream, std::uint64_t* word, std::uint64_t value) const;

 private:
  // The stream, the address of the word, the value, flags.
  using WordCall = int (*)(cudaStream_t, unsigned long long, std::uint64_t, unsigned);

  int device_;
  WordCall waitValue_;
  WordCall writeValue_;
};

}  // namespace fairring
