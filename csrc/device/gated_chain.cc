#include "device/gated_chain.h"

#include <algorithm>
#include <utility>

#include "exchange/dense_body.h"
#include "exchange/transfers.h"
#include "plan/planner.h"

namespace fairring {

namespace {

// The body of slices as the loop has them. The device sums what the rails bring, so their step is over when it is
// there.
class PinnedBody final : public DenseBody {
 public:
  Job afterReceiving(const Slice&, std::size_t, const std::vector<Transfer>&) const override { return {}; }
};

std::vector<Range> reducedIn(const Slice& slice, std::size_t step) {
  const Step& what = (*slice.plan)[step];
  std::vector<Range> ranges;
  for (const Rail& rail : slice.layout->at(what.level).rails) ranges.push_back(reducedRange(what, rail));
  return ranges;
}

}  // namespace

GatedChain::GatedChain(const Planner& planner, int rank, std::uint64_t stagingBytes, Loop& loop,
                       std::unique_ptr<Accelerator> accelerator)
    : stagingBytes_(stagingBytes),
      loop_(loop),
      planCache_(planner, rank),
      pinned_(accelerator->pinned(stagingBytes)),
      device_(accelerator->device(stagingBytes)),
      words_(accelerator->pinned(Gates::kBytes)),
      gates_(words_),
      deviceScheduler_(std::make_shared<DeviceScheduler>(gates_, stagingBytes)),
      pinnedBody_(std::make_shared<const PinnedBody>()),
      accelerator_(std::move(accelerator)) {}

std::vector<GatedChain::Event> GatedChain::enqueue(const Packing& tensors, double scale, std::uint64_t signature,
                                                   Accelerator::Stream stream) {
  const Event begun = accelerator_->record(stream);
  const PlanCache::CachedPlan chosen = planCache_.of(tensors.bytes(), 1);
  std::map<std::size_t, Event> ends;  // of each stream the last one
  std::uint64_t done = 0;
  do {
    Slice slice = cut(tensors, chosen, done);
    const Place where = place(slice);
    slice.signature = signature;
    slice.scale = scale;
    done += slice.layout->elements;
    // First: once the device is full, enqueuing waits for it, and that for the gates.
    announce(slice, where, done == tensors.bytes());
    ends[streamOf(slice)] = launch(slice, where, begun);
  } while (done < tensors.bytes());
  std::vector<Event> events;
  events.reserve(ends.size());
  for (auto& [index, event] : ends) events.push_back(std::move(event));
  return events;
}

// The slice as the device has it.
Slice GatedChain::cut(const Packing& tensors, const PlanCache::CachedPlan& chosen, std::uint64_t from) {
  const std::uint64_t end = std::min(from + chosen.sliceElements, tensors.bytes());
  Slice slice;
  slice.id = nextSlice_;
  ++nextSlice_.sequence;
  slice.layout = planCache_.layoutOf(chosen, slice.id.sequence, end - from, 1);
  slice.plan = chosen.plan;
  slice.portions = tensors.cut({from, end});
  return slice;
}

// The next one along the ring.
GatedChain::Place GatedChain::place(Slice& slice) {
  const std::uint64_t bytes = StagingRing::rounded(stagingBytes(*slice.plan, *slice.layout));
  slice.stagingOffset = nextPlace_ + bytes <= stagingBytes_ ? nextPlace_ : 0;
  slice.image = device_.get() + slice.stagingOffset;
  nextPlace_ = slice.stagingOffset + bytes;
  return {slice.stagingOffset, nextPlace_};
}

// The slice as the loop has it.
void GatedChain::announce(const Slice& slice, const Place& place, bool last) {
  auto pinned = std::make_shared<Slice>(slice);
  for (Portion& portion : pinned->portions) portion.from = portion.to = nullptr;
  pinned->image = pinnedImage(slice);
  pinned->body = pinnedBody_;
  loop_.post([scheduler = deviceScheduler_, pinned = std::move(pinned), bytes = place.end - place.begin,
              last]() mutable { scheduler->add(std::move(pinned), bytes, last); });
}

GatedChain::Event GatedChain::launch(const Slice& slice, const Place& place, const Event& begun) {
  const std::size_t last = slice.plan->size() - 1;
  const Accelerator::Stream stream = accelerator_->stream(streamOf(slice));
  accelerator_->wait(stream, begun);
  awaitPlace(slice, place);
  accelerator_->reduceScatter(stream, slice);
  await(stream, slice, 0);
  copyOut(stream, slice, machineShard(slice));
  tell(stream, slice, 1);
  for (std::size_t step = 1; step < last; ++step) stepOnRails(stream, slice, step);
  accelerator_->allGather(stream, slice);
  Event over = accelerator_->record(stream);
  tell(stream, slice, last + 1);
  used_.push_back({place, streamOf(slice), over});
  return over;
}

// What the loop has brought in this step is summed, and goes out again, or to the user.
void GatedChain::stepOnRails(Accelerator::Stream stream, const Slice& slice, std::size_t step) {
  const Plan& plan = *slice.plan;
  if (!isForDevice(plan, step)) return;
  await(stream, slice, step);
  if (!reduces(plan[step].verb)) {
    const Range shard = machineShard(slice);
    return copyIn(stream, slice, slice.byteOffset(shard.begin), slice.bytes(shard));
  }
  const std::uint64_t areas = receiveOffset(plan, *slice.layout, step);
  copyIn(stream, slice, areas, receiveOffset(plan, *slice.layout, step + 1) - areas);
  const Sums sums = DenseBody::sums(slice, step, slice.body->transfers(slice, step));
  for (const Sum& sum : sums) accelerator_->reduce(stream, sum.reduction, sum.out, sums.inputsOf(sum), sum.elements);
  if (plan[step + 1].level == 0) return;
  for (const Range& range : reducedIn(slice, step)) copyOut(stream, slice, range);
  tell(stream, slice, step + 1);
}

// The events of a stream are complete in order, so of those that had this place the last of each stream is enough.
void GatedChain::awaitPlace(const Slice& slice, const Place& place) {
  std::map<std::size_t, Event> before;
  for (const Used& used : used_) {
    if (used.place.meets(place)) before[used.stream] = used.over;
  }
  std::erase_if(used_, [&](const Used& used) { return used.place.meets(place) && used.place.end <= place.end; });
  before.erase(streamOf(slice));
  const Accelerator::Stream stream = accelerator_->stream(streamOf(slice));
  for (const auto& [index, over] : before) accelerator_->wait(stream, over);
}

void GatedChain::copyOut(Accelerator::Stream stream, const Slice& slice, const Range& range) {
  const std::uint64_t offset = slice.byteOffset(range.begin);
  accelerator_->copyOut(stream, pinnedImage(slice) + offset, slice.image + offset, slice.bytes(range));
}

void GatedChain::copyIn(Accelerator::Stream stream, const Slice& slice, std::uint64_t offset, std::uint64_t bytes) {
  accelerator_->copyIn(stream, slice.image + offset, pinnedImage(slice) + offset, bytes);
}

void GatedChain::await(Accelerator::Stream stream, const Slice& slice, std::size_t gate) {
  accelerator_->gate(stream, gates_.word(slice.id.sequence, gate), Gates::opened(slice.id.sequence));
}

void GatedChain::tell(Accelerator::Stream stream, const Slice& slice, std::size_t step) {
  std::weak_ptr<DeviceScheduler> weak = deviceScheduler_;
  accelerator_->tell(stream, [&loop = loop_, weak = std::move(weak), sequence = slice.id.sequence, step] {
    loop.post([weak, sequence, step] {
      if (const auto scheduler = weak.lock()) scheduler->reached(sequence, step);
    });
  });
}

}  // namespace fairring
