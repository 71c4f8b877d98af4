// The caller's half of all-reduces of a device's tensors: puts the whole chain of each slice on a stream, at once and
// in program order, and tells the loop's half (device_scheduler.h) of it. Nothing is left to be enqueued later, so the
// host never waits for the network, and every rank launches in the order of its program.
//
// It can't deadlock, even where all streams share one queue of the device: a gate waits for this rank's loop alone, and
// that for nothing but earlier work, here and on the peers: the peers' own chains up to the same slice.
//
// Staging exists twice, with equal offsets: pinned, where the loop moves bytes, and on the device, where they are
// summed. Slices take places along the ring, whoever is done first. The pinned place is guarded by the slice's first
// gate, the device's by the events that end the slices which had it before.
// Callers, one at a time (the group's order). The accelerator's rules hold: no gate is shut at the end of its life.
// All memory of the device's, pinned too, is owned here, and ends where the chain does: never on the loop. The
// scheduler has failed before, and the rails have been stopped, so that nothing there touches it any more.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/loop.h"
#include "device/accelerator.h"
#include "device/device_scheduler.h"
#include "device/gates.h"
#include "engine/packing.h"
#include "engine/plan_cache.h"

namespace fairring {

class GatedChain {
 public:
  using Event = Accelerator::Event;

  // The planner and the loop outlive it. Takes its staging of the accelerator at once.
  GatedChain(const Planner& planner, int rank, std::uint64_t stagingBytes, Loop& loop,
             std::unique_ptr<Accelerator> accelerator);

  const std::shared_ptr<DeviceScheduler>& scheduler() const { return deviceScheduler_; }
  Accelerator& accelerator() { return *accelerator_; }

  // Tensors of the device, behind what `stream` holds so far. The scheduler's begin() has been posted before. When
  // these events are complete, so is the call, or it has failed. Throws Failure; the group has to fail then, which
  // opens the gates.
  std::vector<Event> enqueue(const Packing& tensors, double scale, std::uint64_t signature, Accelerator::Stream stream);

 private:
  struct Place {  // in the ring
    std::uint64_t begin;
    std::uint64_t end;
    bool meets(const Place& other) const { return begin < other.end && other.begin < end; }
  };
  struct Used {
    Place place;
    std::size_t stream;
    Event over;
  };

  Slice cut(const Packing& tensors, const PlanCache::CachedPlan& chosen, std::uint64_t from);
  Place place(Slice& slice);
  void announce(const Slice& slice, const Place& place, bool last);
  Event launch(const Slice& slice, const Place& place, const Event& begun);
  void awaitPlace(const Slice& slice, const Place& place);
  void stepOnRails(Accelerator::Stream stream, const Slice& slice, std::size_t step);
  void copyOut(Accelerator::Stream stream, const Slice& slice, const Range& range);
  void copyIn(Accelerator::Stream stream, const Slice& slice, std::uint64_t offset, std::uint64_t bytes);
  void await(Accelerator::Stream stream, const Slice& slice, std::size_t gate);
  void tell(Accelerator::Stream stream, const Slice& slice, std::size_t step);
  std::size_t streamOf(const Slice& slice) const { return slice.id.sequence % accelerator_->streams(); }
  std::byte* pinnedImage(const Slice& slice) const { return pinned_.get() + slice.stagingOffset; }

  const std::uint64_t stagingBytes_;
  Loop& loop_;
  PlanCache planCache_;
  const Accelerator::Memory pinned_;
  const Accelerator::Memory device_;
  const Accelerator::Memory words_;
  const Gates gates_;
  const std::shared_ptr<DeviceScheduler> deviceScheduler_;
  const std::shared_ptr<const SliceBody> pinnedBody_;
  SliceId nextSlice_{SliceQueue::Device, 0};
  std::uint64_t nextPlace_ = 0;
  std::deque<Used> used_;                           // in the order of slices
  const std::unique_ptr<Accelerator> accelerator_;  // ends first: it waits for all that is enqueued
};

}  // namespace fairring
