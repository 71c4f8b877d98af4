// The part of the CUDA runtime for streams, events, and functions of the host that streams call.
#include <cuda_runtime_api.h>

#include "calls.h"
#include "events.h"
#include "report.h"
#include "settings.h"

using emulated::Devices;
using emulated::failed;
using emulated::hostThread;
using emulated::Stream;

namespace {

void callHostFunction(const std::function<void()>& function) {
  std::unique_lock<std::mutex> driver(emulated::driverMutex(), std::defer_lock);
  if (emulated::settings().driverLock) driver.lock();
  hostThread().isInHostFunction = true;
  function();
  hostThread().isInHostFunction = false;
}

void enqueueHostFunction(cudaStream_t handle, const char* what, const std::function<void()>& function) {
  Devices& devices = Devices::all();
  const Devices::Lock lock = devices.lock();
  devices.enqueue(devices.stream(handle), {what, nullptr, [function] { callHostFunction(function); }});
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  EMULATED_CALL("cudaStreamCreateWithPriority");
  Devices& devices = Devices::all();
  const Devices::Lock lock = devices.lock();
  devices.use(hostThread().device);
  *stream = reinterpret_cast<cudaStream_t>(devices.create(hostThread().device, flags, priority));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

// It stays, idle, until the process ends: what was enqueued goes on.
cudaError_t cudaStreamDestroy(cudaStream_t) {
  EMULATED_CALL("cudaStreamDestroy");
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  EMULATED_CALL("cudaStreamGetPriority");
  const Devices::Lock lock = Devices::all().lock();
  *priority = Devices::all().stream(stream)->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  EMULATED_CALL("cudaStreamQuery");
  const Devices::Lock lock = Devices::all().lock();
  EMULATED_UNCAPTURED("cudaStreamQuery");
  return Devices::all().stream(stream)->isIdle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  EMULATED_CALL("cudaStreamSynchronize");
  Devices::Lock lock = Devices::all().lock();
  EMULATED_UNCAPTURED("cudaStreamSynchronize");
  Devices::all().awaitStream(lock, Devices::all().stream(stream));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  EMULATED_CALL("cudaEventCreateWithFlags");
  const Devices::Lock lock = Devices::all().lock();
  Devices::all().use(hostThread().device);
  *event = new CUevent_st{hostThread().device, nullptr, {}};
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  EMULATED_CALL("cudaEventDestroy");
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
  EMULATED_CALL("cudaEventRecord");
  Devices& devices = Devices::all();
  const Devices::Lock lock = devices.lock();
  Stream* stream = devices.stream(handle);
  if (stream->device != event->device)
    emulated::fatal("an event of device %d is recorded in a stream of device %d", event->device, stream->device);
  event->capture = stream->capture;
  if (stream->capture != nullptr) return cudaSuccess;  // the captured order is the program's
  event->record = std::make_shared<CUevent_st::Record>();
  devices.enqueue(stream, {"an event", nullptr, [record = event->record] {
                             const Devices::Lock here = Devices::all().lock();
                             record->isReached = true;
                             record->at = std::chrono::steady_clock::now();
                           }});
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  EMULATED_CALL("cudaEventQuery");
  const Devices::Lock lock = Devices::all().lock();
  EMULATED_UNCAPTURED("cudaEventQuery");
  return event->isReached() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  EMULATED_CALL("cudaEventSynchronize");
  Devices::Lock lock = Devices::all().lock();
  EMULATED_UNCAPTURED("cudaEventSynchronize");
  Devices::all().await(lock, [record = event->record] { return record == nullptr || record->isReached; });
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  EMULATED_CALL("cudaEventElapsedTime");
  const Devices::Lock lock = Devices::all().lock();
  if (from->record == nullptr || to->record == nullptr) return failed(cudaErrorInvalidResourceHandle);
  if (!from->isReached() || !to->isReached()) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to->record->at - from->record->at).count();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  EMULATED_CALL("cudaStreamWaitEvent");
  Devices& devices = Devices::all();
  std::shared_ptr<emulated::Capture> capture;  // dropped without the lock
  const Devices::Lock lock = devices.lock();
  Stream* stream = devices.stream(handle);
  capture = event->capture.lock();
  if (devices.captures.contains(capture.get())) {
    if (stream->capture != nullptr && stream->capture != capture) return failed(cudaErrorStreamCaptureMerge);
    stream->capture = std::move(capture);
    return cudaSuccess;
  }
  if (event->record == nullptr) return cudaSuccess;
  if (stream->capture != nullptr) return failed(cudaErrorStreamCaptureIsolation);
  if (emulated::isLeftOut(emulated::Omission::StreamWaitEvent, __builtin_return_address(0))) return cudaSuccess;
  devices.enqueue(stream, {"a wait for an event", [record = event->record] { return record->isReached; }, nullptr});
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  EMULATED_CALL("cudaLaunchHostFunc");
  enqueueHostFunction(stream, "a function of the host", [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
  EMULATED_CALL("cudaStreamAddCallback");
  enqueueHostFunction(stream, "a callback", [=] { function(stream, cudaSuccess, data); });
  return cudaSuccess;
}

}  // extern "C"
