// Streams and events of CUDA that end with their owners, and what streams can be made to wait for. Only in builds with
// CUDA. Any thread; what goes wrong is thrown as a Failure that names the call and the device.
//
// While some other thread captures a graph in the global mode, CUDA forbids this thread what may synchronise, which is
// none of the capture's business here: CaptureUnheeded lifts that for a scope.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fairring {

class CaptureUnheeded {
 public:
  CaptureUnheeded() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~CaptureUnheeded() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  CaptureUnheeded(const CaptureUnheeded&) = delete;
  CaptureUnheeded& operator=(const CaptureUnheeded&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A stream of the device's highest priority that is not ordered with the legacy default stream. With the highest
// priority, kernels of ordinary priority need not stand behind our gates.
class CudaStream {
 public:
  explicit CudaStream(int device);
  ~CudaStream();
  CudaStream(CudaStream&& other) noexcept;
  CudaStream& operator=(CudaStream&&) = delete;

  cudaStream_t get() const { return stream_; }
  void synchronize() const;  // the host waits for all that is enqueued

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

  void record(cudaStream_t stream);          // as the stream stands now; who waits already, waits for the point before
  void holdBack(cudaStream_t stream) const;  // until the point is reached

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

// Events that are used again once nobody holds them: to make and to destroy one takes the lock of the context.
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
  const std::shared_ptr<Idle> idle_;  // outlives the pool where an event does
};

// Calls the function, and drops it, on a thread of CUDA's when all that was enqueued before is complete. It must not
// block, and neither it nor what dies with it may call CUDA. It is never called if the context has an error by then.
void callFrom(cudaStream_t stream, std::function<void()> function, int device);

// Words in memory that a stream waits for, or writes: operations of the driver's, looked up in the one that the process
// has.
class StreamWords {
 public:
  explicit StreamWords(int device);  // throws Failure(Configuration) where unusable() has a reason

  // Why a stream of this device can't do so with words of 64 bits; empty where it can.
  static std::string unusable(int device);

  // Holds the stream until *word, in pinnedMemory(), has counted up to the value.
  void holdUntil(cudaStream_t stream, const std::uint64_t* word, std::uint64_t atLeast) const;

  // Writes the word, in pinnedMemory(), when all that was enqueued before is complete, and the host sees what that
  // wrote.
  void write(cudaStream_t stream, std::uint64_t* word, std::uint64_t value) const;

 private:
  int device_;
  void* waitValue_;
  void* writeValue_;
};

}  // namespace fairring
