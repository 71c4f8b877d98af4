#include "device/device_chain.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/staging.h"
#include "plan/planner.h"

namespace fairring {

DeviceChain::DeviceChain(const Planner& planner, int rank, std::uint64_t stagingBytes,
                         std::shared_ptr<Accelerator> accelerator, Loop& loop)
    : stagingBytes_(stagingBytes),
      slicing_(planner, rank),
      device_(accelerator->device(stagingBytes)),
      rails_(*accelerator, stagingBytes, loop),
      accelerator_(std::move(accelerator)) {}

DeviceChain::Event DeviceChain::enqueue(const Tensors& tensors, Accelerator::Stream stream) {
  const Event begun = accelerator_->record(stream);
  const CallPart part = slicing_.ofTensors(tensors.pattern, tensors.packing);
  std::map<std::size_t, Event> ends;  // of each stream the last one
  for (std::uint64_t done = 0;;) {
    const Range stretch = part.stretchFrom(done);
    Slice slice = cut(tensors, part, stretch);
    const Place where = place(slice);
    done = stretch.end;
    // First: once the device is full, enqueuing waits for it, and that for the gates.
    rails_.announce(slice, {.bytes = where.end - where.begin, .after = after(where), .last = done == part.bytes},
                    accelerator_->stream(streamOf(slice.id)));
    begin(slice, where, begun);
    if (done < part.bytes) {
      ends[streamOf(slice.id)] = end(slice, where);
      continue;
    }
    ends.erase(streamOf(slice.id));
    const Accelerator::Stream last = accelerator_->stream(streamOf(slice.id));
    for (const auto& [index, over] : ends) accelerator_->wait(last, over);
    poisonIfFailed(last, tensors);
    return end(slice, where);
  }
}

void DeviceChain::poisonIfFailed(Accelerator::Stream stream, const Tensors& tensors) {
  if (!tensors.poisoned.empty()) accelerator_->poisonIf(stream, exchange()->gates().failed(), tensors.poisoned);
}

// The slice as the device has it: a stretch of each row of the tensors' bytes.
Slice DeviceChain::cut(const Tensors& tensors, const CallPart& part, const Range& stretch) {
  Slice slice;
  slice.id = nextSlice_;
  ++nextSlice_.sequence;
  slice.signature = tensors.signature;
  slice.scale = tensors.scale;
  part.cut(slice, stretch);
  return slice;
}

// The next one along the ring.
DeviceChain::Place DeviceChain::place(Slice& slice) {
  const std::uint64_t bytes = StagingRing::rounded(stagingBytes(*slice.plan, *slice.layout));
  slice.stagingOffset = nextPlace_ + bytes <= stagingBytes_ ? nextPlace_ : 0;
  slice.image = device_.get() + slice.stagingOffset;
  nextPlace_ = slice.stagingOffset + bytes;
  return {slice.stagingOffset, nextPlace_};
}

void DeviceChain::begin(const Slice& slice, const Place& place, const Event& begun) {
  const Accelerator::Stream stream = accelerator_->stream(streamOf(slice.id));
  accelerator_->wait(stream, begun);
  awaitPlace(slice, place);
  enter(stream, slice);
  rails_.enqueue(*accelerator_, stream, slice);
  leave(stream, slice);
}

DeviceChain::Event DeviceChain::end(const Slice& slice, const Place& place) {
  const Accelerator::Stream stream = accelerator_->stream(streamOf(slice.id));
  Event over = accelerator_->record(stream);
  rails_.endSlice(*accelerator_, stream);
  used_.push_back({place, slice.id, over});
  return over;
}

void DeviceChain::enter(Accelerator::Stream stream, const Slice& slice) {
  const bool loads = slice.plan->front().verb == Verb::Load;
  loads ? accelerator_->load(stream, slice) : accelerator_->reduceScatter(stream, slice);
}

void DeviceChain::leave(Accelerator::Stream stream, const Slice& slice) {
  const bool stores = slice.plan->back().verb == Verb::Store;
  stores ? accelerator_->store(stream, slice) : accelerator_->allGather(stream, slice);
}

// The number below which all slices have to be released before the place is free. The rails' memory has the same
// places, and is given back in slice order.
std::uint64_t DeviceChain::after(const Place& place) const {
  const auto last =
      std::ranges::find_if(used_.rbegin(), used_.rend(), [&](const Used& used) { return used.place.meets(place); });
  return last == used_.rend() ? 0 : last->slice.sequence + 1;
}

// The events of a stream are complete in order, so of those that had this place the last of each stream is enough.
void DeviceChain::awaitPlace(const Slice& slice, const Place& place) {
  std::map<std::size_t, Event> before;
  for (const Used& used : used_) {
    if (used.place.meets(place)) before[streamOf(used.slice)] = used.over;
  }
  std::erase_if(used_, [&](const Used& used) { return used.place.meets(place) && used.place.end <= place.end; });
  before.erase(streamOf(slice.id));
  const Accelerator::Stream stream = accelerator_->stream(streamOf(slice.id));
  for (const auto& [index, over] : before) accelerator_->wait(stream, over);
}

}  // namespace fairring
