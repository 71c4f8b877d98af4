#include "backend/through_host.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

#include "backend/cuda_device.h"

namespace fairring {
namespace {

// torch throws where a device has none. To ask each time would take as long as a small call.
c10::Allocator* pinnedOr(c10::Allocator* plain, c10::DeviceType device) {
  static std::mutex mutex;
  static std::map<c10::DeviceType, c10::Allocator*> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(device); found != known.end()) return found->second;
  c10::Allocator* allocator = plain;
  try {
    allocator = at::globalContext().getPinnedMemoryAllocator(device);
    // NOLINTNEXTLINE(bugprone-empty-catch): the plain one then
  } catch (const c10::Error&) {
  }
  return known[device] = allocator;
}

}  // namespace

CopyStreams CopyStreams::of(const c10::Device& device) {
  static std::mutex mutex;
  static std::unordered_map<c10::Device, CopyStreams> made;
  const std::lock_guard lock(mutex);
  if (const auto known = made.find(device); known != made.end()) return known->second;
  const c10::impl::VirtualGuardImpl there(device.type());
  const CopyStreams streams{there.getStreamFromGlobalPool(device, /*isHighPriority=*/true),
                            there.getStreamFromGlobalPool(device, /*isHighPriority=*/true)};
  return made.emplace(device, streams).first->second;
}

bool pinsMemoryFor(c10::DeviceType device) {
  c10::Allocator* const plain = c10::GetCPUAllocator();
  return pinnedOr(plain, device) != plain;
}

at::Tensor hostMemory(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceType device) {
  c10::Allocator* const plain = c10::GetCPUAllocator();
  c10::Allocator* const allocator = device == at::kCPU ? plain : pinnedOr(plain, device);
  return at::detail::empty_generic(sizes, allocator, c10::DispatchKeySet(c10::DispatchKey::CPU), dtype, std::nullopt);
}

c10::Stream uncaptured(const c10::Stream& callers) {
  TORCH_CHECK_WITH(ValueError, !isCapturing(callers), "a CUDA graph can't capture calls that go through the host's ",
                   "memory, as those of this group on ", callers.device(), " do: make them outside of the capture");
  return callers;
}

std::vector<c10::Device> devicesOf(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    const bool isKnown = std::ranges::find(devices, tensor.device()) != devices.end();
    if (!tensor.is_cpu() && !isKnown) devices.push_back(tensor.device());
  }
  return devices;
}

std::vector<c10::Stream> outStreamsOf(const std::vector<c10::Device>& devices) {
  std::vector<c10::Stream> streams;
  streams.reserve(devices.size());
  for (const c10::Device& device : devices) streams.push_back(CopyStreams::of(device).out);
  return streams;
}

std::shared_ptr<const WayBack> WayBack::of(const at::Tensor& tensor) {
  return tensor.is_cpu() ? nullptr : std::make_shared<const WayBack>(tensor.device());
}

WayBack::WayBack(const c10::Device& device) : out_(CopyStreams::of(device).out), called_(device.type()) {
  called_.record(uncaptured(callersStream(device)));
}

void WayBack::copy(const std::function<void()>& copies) const {
  const std::unique_ptr<CaptureUnheeded> unheeded = captureUnheeded(out_.device());
  const c10::StreamGuard onIt(out_);
  called_.block(out_);
  copies();
  out_.synchronize();
}

}  // namespace fairring
