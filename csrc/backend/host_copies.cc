#include "backend/host_copies.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <utility>

#include "backend/cuda_device.h"
#include "backend/gil.h"
#include "backend/through_host.h"

namespace fairring {
namespace {

// To wait for so few on an idle stream takes less than to wake a thread that waits.
constexpr std::uint64_t kShortBytes = 64 << 10;

// Not every device can tell.
bool isIdle(const c10::Stream& stream) {
  try {
    const std::unique_ptr<CaptureUnheeded> unheeded = captureUnheeded(stream.device());
    return stream.query();
  } catch (const c10::Error&) {
    return false;
  }
}

}  // namespace

at::Tensor HostCopies::of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  const GilReleased withoutLock;
  const at::AutoDispatchBelowAutograd noGradient;
  const c10::Stream callers = uncaptured(callersStream(tensor.device()));
  auto of = std::ranges::find(streams_, callers, &OfStream::stream);
  if (of == streams_.end()) {
    wereIdle_ = wereIdle_ && isIdle(callers);
    of = streams_.insert(of, {callers, {}});
  }
  at::Tensor copy = hostMemory(tensor.sizes(), tensor.scalar_type(), tensor.device().type());
  copy.copy_(tensor, /*non_blocking=*/pinsMemoryFor(tensor.device().type()));
  bytes_ += tensor.nbytes();
  of->tensors.insert(of->tensors.end(), {tensor, copy});
  return copy;
}

void HostCopies::await() {
  const GilReleased withoutLock;
  for (const OfStream& one : streams_) one.stream.synchronize();
  streams_.clear();
}

std::shared_ptr<Arrival> HostCopies::leaveTo(CopyWaiters& waiters, bool waited) {
  std::vector<OfStream> streams = std::exchange(streams_, {});
  if (streams.empty()) return nullptr;
  auto arrival = std::make_shared<Arrival>(streams.size());
  const bool comeSoon = wereIdle_ && (waited || bytes_ <= kShortBytes);
  for (OfStream& one : streams) {
    comeSoon ? arrival->come(CopyWaiters::waitHere(one.stream))
             : waiters.wait(one.stream, std::move(one.tensors), arrival);
  }
  return arrival->isThere() ? nullptr : arrival;
}

}  // namespace fairring
