// The pipeline's way with calls on a device, whose slices come cut and placed.
#include <utility>

#include "engine/pipeline.h"

namespace fairring {

// After this its streams may write into the tensors: if the call fails, every gate opens.
void Pipeline::submitOnDevice(Call call) {
  enqueue({.call = std::move(call),
           .packing = Packing({}),
           .signature = 0,
           .queue = SliceQueue::Device,
           .isTouched = true,
           .body = levels_.dense});
}

void Pipeline::add(std::shared_ptr<Slice> slice, std::uint64_t stagingBytes, bool last) {
  const Queue& queue = queueOf(SliceQueue::Device);
  if (queue.uncut.empty()) return;  // the call has failed meanwhile
  queue.uncut.back()->placed.push_back({std::move(slice), stagingBytes});
  queue.uncut.back()->isComplete = last;
  run();
}

// The next slice that has been cut by its caller, if its place is free.
bool Pipeline::takeNext() {
  Queue& queue = queueOf(SliceQueue::Device);
  if (queue.uncut.empty() || queue.uncut.front()->placed.empty()) return false;
  if (!hasMark(queue)) return waitsForStaging(queue);
  const std::shared_ptr<Pending> pending = queue.uncut.front();
  const auto [slice, bytes] = pending->placed.front();
  if (!queue.ring.takeAt(slice->id.sequence, slice->stagingOffset, bytes)) return waitsForStaging(queue);
  recordStaging(queue, *slice, bytes);
  pending->placed.pop_front();
  pending->cut = pending->isComplete && pending->placed.empty();
  begin(queue, pending, slice);
  return true;
}

}  // namespace fairring
