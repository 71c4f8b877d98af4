// The pipeline's way with calls on a device, whose slices come cut and placed.
#include <utility>

#include "engine/pipeline.h"

namespace fairring {

// After this its streams may write into the tensors: if the call fails, every gate opens.
void Pipeline::submitOnDevice(Call call) {
  enqueue({.call = std::move(call), .queue = SliceQueue::Device, .isTouched = true});
}

void Pipeline::add(std::shared_ptr<Slice> slice, const Placement& placement) {
  if (queueOf(SliceQueue::Device).uncut.empty()) return;  // the call has failed meanwhile
  placed_.emplace_back(std::move(slice), placement);
  run();
}

// The next slice that has been cut by its caller, if its place is free.
bool Pipeline::takeNext() {
  Queue& queue = queueOf(SliceQueue::Device);
  if (placed_.empty()) return false;
  const auto [slice, placement] = placed_.front();
  const bool isFree = queue.inFlight.empty() || queue.inFlight.begin()->first.sequence >= placement.after;
  if (!isFree || !hasMark(queue)) return waitsForStaging(queue);
  recordStaging(queue, *slice, placement.bytes);
  placed_.pop_front();
  const std::shared_ptr<Pending> pending = queue.uncut.front();
  pending->isCut = placement.last;
  begin(queue, pending, slice);
  return true;
}

}  // namespace fairring
