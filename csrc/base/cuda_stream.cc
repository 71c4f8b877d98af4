#include "base/cuda_stream.h"

#include <utility>

#include "base/cuda_driver.h"
#include "base/cuda_error.h"
#include "base/error.h"

namespace fairring {
namespace {

thread_local int unheededScopes = 0;  // scopes of CaptureUnheeded

constexpr int kCanWaitForWordsOf64Bits = 122;  // attribute of a device
constexpr unsigned kWaitForAtLeast = 0;        // flags of cuStreamWaitValue64
constexpr unsigned kWriteInOrder = 0;          // and of cuStreamWriteValue64

// The driver has had these calls in their present form since that version.
auto waitValueCall() {
  return driverCall<cudaStream_t, unsigned long long, std::uint64_t, unsigned>("cuStreamWaitValue64", 11070);
}
auto writeValueCall() {
  return driverCall<cudaStream_t, unsigned long long, std::uint64_t, unsigned>("cuStreamWriteValue64", 11070);
}

}  // namespace

CaptureUnheeded::CaptureUnheeded() {
  if (unheededScopes++ == 0) forget(cudaThreadExchangeStreamCaptureMode(&mode_));
}

CaptureUnheeded::~CaptureUnheeded() {
  if (--unheededScopes == 0) forget(cudaThreadExchangeStreamCaptureMode(&mode_));
}

CudaStream::CudaStream(int device) : device_(device) {
  const CurrentDevice current(device);
  const CaptureUnheeded unheeded;
  int least = 0;
  int greatest = 0;
  checkCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange", device);
  checkCuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority",
            device);
}

// Enqueued work still runs; the stream's memory is given back afterwards.
CudaStream::~CudaStream() {
  if (stream_ != nullptr) dropOn(device_, [this] { return cudaStreamDestroy(stream_); });
}

CudaStream::CudaStream(CudaStream&& other) noexcept
    : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}

void CudaStream::synchronize() const {
  const CaptureUnheeded unheeded;
  checkCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", device_);
}

CudaEvent::CudaEvent(int device) : device_(device) {
  const CurrentDevice current(device);  // events belong to the device that is current when they are made
  checkCuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags", device);
}

CudaEvent::~CudaEvent() {
  dropOn(device_, [this] { return cudaEventDestroy(event_); });
}

void CudaEvent::record(cudaStream_t stream) {
  const CurrentDevice current(device_);
  checkCuda(cudaEventRecord(event_, stream), "cudaEventRecord", device_);
}

void CudaEvent::holdBack(cudaStream_t stream) const {
  checkCuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent", device_);
}

std::shared_ptr<CudaEvent> CudaEventPool::record(cudaStream_t stream) {
  std::unique_ptr<CudaEvent> event;
  {
    const std::lock_guard lock(idle_->mutex);
    if (!idle_->events.empty()) {
      event = std::move(idle_->events.back());
      idle_->events.pop_back();
    }
  }
  if (!event) event = std::make_unique<CudaEvent>(device_);
  event->record(stream);
  return {event.release(), [idle = idle_](CudaEvent* done) {
            std::unique_ptr<CudaEvent> owned(done);
            const std::lock_guard lock(idle->mutex);
            idle->events.push_back(std::move(owned));
          }};
}

std::string StreamWords::unusable(int device) {
  const auto deviceOf = driverCall<int*, int>("cuDeviceGet", 2000);
  const auto attributeOf = driverCall<int*, int, int>("cuDeviceGetAttribute", 2000);
  if (deviceOf == nullptr || attributeOf == nullptr || waitValueCall() == nullptr || writeValueCall() == nullptr) {
    return concat("the driver of CUDA device ", device,
                  " has no cuStreamWaitValue64 or cuStreamWriteValue64: one of CUDA 11.7 or later has both");
  }
  int handle = 0;
  int can = 0;
  if (deviceOf(&handle, device) != kDriverSuccess ||
      attributeOf(&can, kCanWaitForWordsOf64Bits, handle) != kDriverSuccess || can == 0) {
    return concat("CUDA device ", device, " or its driver does not let streams wait for words of 64 bits in memory");
  }
  return {};
}

StreamWords::StreamWords(int device) : device_(device), waitValue_(waitValueCall()), writeValue_(writeValueCall()) {
  const std::string reason = unusable(device);
  check(reason.empty(), ErrorKind::Configuration, reason);
}

void StreamWords::holdUntil(cudaStream_t stream, const std::uint64_t* word, std::uint64_t atLeast) const {
  const CurrentDevice current(device_);
  const auto address = reinterpret_cast<std::uintptr_t>(word);  // pinned memory has the same address everywhere
  checkDriver(waitValue_(stream, address, atLeast, kWaitForAtLeast), "cuStreamWaitValue64", device_);
}

void StreamWords::write(cudaStream_t stream, std::uint64_t* word, std::uint64_t value) const {
  const CurrentDevice current(device_);
  const auto address = reinterpret_cast<std::uintptr_t>(word);
  checkDriver(writeValue_(stream, address, value, kWriteInOrder), "cuStreamWriteValue64", device_);
}

}  // namespace fairring
