// Tensors of a device that no stock backend of the group serves: their calls are carried out on copies in the host's
// memory, which torch's own streams and events of that device order, whatever device it is. Any thread.
//
// To the host: host_copies.h. Back: on a stream of our own, behind all that the caller's stream had enqueued when the
// call was made. Whoever copies waits until the copies are there, before the call is complete: then any stream may read
// its results.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <vector>

namespace fairring {

// Two for each device of the process, so that neither direction queues behind the other.
struct CopyStreams {
  c10::Stream in;  // to the host
  c10::Stream out;

  static CopyStreams of(const c10::Device& device);
};

// Memory of the host for tensors of that device: pinned, where the device's torch can do that.
bool pinsMemoryFor(c10::DeviceType device);
at::Tensor hostMemory(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceType device);
// Returns that stream. Throws c10::Error where a graph captures it: the graph would replay copies without the call
// between them.
c10::Stream uncaptured(const c10::Stream& callers);

// The devices of these tensors, each once, without the CPU.
std::vector<c10::Device> devicesOf(const std::vector<at::Tensor>& tensors);
// On which copies to these devices end.
std::vector<c10::Stream> outStreamsOf(const std::vector<c10::Device>& devices);

class WayBack {
 public:
  // Null for a tensor of the CPU. Throws as uncaptured() does.
  static std::shared_ptr<const WayBack> of(const at::Tensor& tensor);
  explicit WayBack(const c10::Device& device);

  // Carries out copies to the device, and waits for them.
  void copy(const std::function<void()>& copies) const;

 private:
  const c10::Stream out_;
  c10::Event called_;  // on the caller's stream
};

}  // namespace fairring
