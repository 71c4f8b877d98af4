// The part of the CUDA runtime for captures and graphs. A graph runs its nodes as one work item, in program order.
#include <cuda_runtime_api.h>

#include <atomic>
#include <utility>

#include "calls.h"

using emulated::Capture;
using emulated::Devices;
using emulated::failed;
using emulated::hostThread;
using emulated::Stream;

struct CUgraph_st {
  std::shared_ptr<Capture> capture;
};

struct CUgraphExec_st {
  std::shared_ptr<Capture> capture;
};

struct CUuserObject_st {
  void* data;
  cudaHostFn_t destroy;
  std::atomic<unsigned> references;

  void release(unsigned count) {
    if (references.fetch_sub(count) > count) return;
    hostThread().isInHostFunction = true;  // it must not call CUDA
    destroy(data);
    hostThread().isInHostFunction = false;
    delete this;
  }
};

namespace {

cudaStreamCaptureStatus statusOf(const std::shared_ptr<Capture>& capture) {
  return capture == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
}

// The legacy default stream can't capture, and to ask for it would begin to use a device.
std::shared_ptr<Capture> captureOf(cudaStream_t stream) {
  return stream == nullptr ? nullptr : Devices::all().stream(stream)->capture;
}

// Of a graph, or of one that is being captured.
Capture* captureOf(cudaGraph_t graph) {
  auto* capture = reinterpret_cast<Capture*>(graph);
  const Devices::Lock lock = Devices::all().lock();
  return Devices::all().captures.contains(capture) ? capture : graph->capture.get();
}

void runAll(const Capture& capture) {
  for (const emulated::Work& work : capture.works) {
    if (work.ready) {
      Devices::Lock lock = Devices::all().lock();
      Devices::all().await(lock, work.ready);
    }
    emulated::pause();
    if (work.run) work.run();
  }
}

}  // namespace

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  EMULATED_QUERY("cudaThreadExchangeStreamCaptureMode");
  std::swap(hostThread().captureMode, *mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  EMULATED_QUERY("cudaStreamIsCapturing");
  const Devices::Lock lock = Devices::all().lock();
  *status = statusOf(captureOf(stream));
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  EMULATED_QUERY("cudaStreamGetCaptureInfo");
  const Devices::Lock lock = Devices::all().lock();
  const auto capture = captureOf(stream);
  *status = statusOf(capture);
  if (id != nullptr) *id = capture == nullptr ? 0 : capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(capture.get());
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  EMULATED_CALL("cudaStreamBeginCapture");
  Devices& devices = Devices::all();
  const Devices::Lock lock = devices.lock();
  Stream* stream = devices.stream(handle);
  if (stream->isLegacy || stream->capture != nullptr) return failed(cudaErrorStreamCaptureUnsupported);
  stream->capture =
      std::make_shared<Capture>(Capture{devices.nextId++, mode, std::this_thread::get_id(), stream, {}, {}});
  devices.captures.insert(stream->capture.get());
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  EMULATED_CALL("cudaStreamEndCapture");
  Devices& devices = Devices::all();
  const Devices::Lock lock = devices.lock();
  const Stream* origin = devices.stream(handle);
  const auto capture = origin->capture;
  if (capture == nullptr || capture->origin != origin) return failed(cudaErrorIllegalState);
  devices.captures.erase(capture.get());
  devices.endCapture(*capture);
  *graph = new CUgraph_st{capture};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  EMULATED_CALL("cudaGraphInstantiate");
  *executable = new CUgraphExec_st{graph->capture};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  EMULATED_CALL("cudaGraphLaunch");
  Devices& devices = Devices::all();
  const Devices::Lock lock = devices.lock();
  devices.enqueue(devices.stream(stream), {"a graph", nullptr, [capture = executable->capture] { runAll(*capture); }});
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  EMULATED_CALL("cudaGraphDestroy");
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  EMULATED_CALL("cudaGraphExecDestroy");
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy, unsigned references,
                                 unsigned) {
  EMULATED_CALL("cudaUserObjectCreate");
  *object = new CUuserObject_st{data, destroy, references};
  return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  EMULATED_CALL("cudaUserObjectRelease");
  object->release(count);
  return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  EMULATED_CALL("cudaGraphRetainUserObject");
  if ((flags & cudaGraphUserObjectMove) == 0) object->references += count;
  const auto release = [object, count](void*) { object->release(count); };
  captureOf(graph)->held.emplace_back(nullptr, release);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = graph->capture->works.size();
  return cudaSuccess;
}

}  // extern "C"
