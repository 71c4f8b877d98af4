// The caller's half of calls on a device's tensors: puts the whole chain of each slice on a stream, at once and in
// program order: level 0, then what goes between machines (gated_rails.h), then level 0 again. Nothing is left to be
// enqueued later, so the host never waits for the rails, and every rank launches in the order of its program.
// A reduce-scatter is the first half of an all-reduce's chain, and an all-gather the second: the other end of each is a
// copy of this rank's own block.
//
// The call's last slice waits for the others, and poisons the results if the group has failed by then: before the host
// is told that this slice is over. So a call that is complete for the host has its results, and one that is not has no
// results that look like some.
//
// Slices take places in the device's staging along a ring, whoever is done first. A place is guarded by the events that
// end the slices which had it before.
// Callers, one at a time (the group's order). The accelerator's rules hold: no gate is shut at the end of its life.
// All memory of the device's, pinned too, is held here and by the rails, and given back where the chain ends: never on
// the loop. The loop's half has failed before, and its rails have been stopped, so that nothing there touches it any
// more.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "device/accelerator.h"
#include "device/gated_rails.h"
#include "engine/packing.h"
#include "engine/slicing.h"

namespace fairring {

class DeviceChain {
 public:
  using Event = Accelerator::Event;

  // The planner and the loop outlive it. Takes its staging of the accelerator at once. Whoever shares the accelerator
  // still at the end has waited for all that was enqueued.
  DeviceChain(const Planner& planner, int rank, std::uint64_t stagingBytes, std::shared_ptr<Accelerator> accelerator,
              Loop& loop);

  std::shared_ptr<DeviceExchange> exchange() const { return rails_.exchange(); }
  Accelerator& accelerator() { return *accelerator_; }
  const std::shared_ptr<Accelerator>& sharedAccelerator() const { return accelerator_; }

  // The tensors of an all-reduce, a reduce-scatter or an all-gather. The blocks of the last two stand as level 0 wants
  // them (accelerator.h).
  struct Tensors {
    Pattern pattern;
    Packing packing;
    double scale = 1.0;
    std::uint64_t signature = 0;
    // Where a failed call's results have to be no numbers.
    std::vector<std::span<std::byte>> poisoned = {};
  };
  // Tensors of the device, behind what `stream` holds so far. The pipeline's submitOnDevice() has been posted before.
  // When the event is complete, so is the call, or it has failed. Throws Failure; the group has to fail then, which
  // opens the gates.
  Event enqueue(const Tensors& tensors, Accelerator::Stream stream);

 private:
  struct Place {  // in the ring
    std::uint64_t begin;
    std::uint64_t end;
    bool meets(const Place& other) const { return begin < other.end && other.begin < end; }
  };
  struct Used {
    Place place;
    SliceId slice;
    Event over;
  };

  Slice cut(const Tensors& tensors, const CallPart& part, const Range& stretch);
  Place place(Slice& slice);
  void begin(const Slice& slice, const Place& place, const Event& begun);
  Event end(const Slice& slice, const Place& place);
  void poisonIfFailed(Accelerator::Stream stream, const Tensors& tensors);
  std::uint64_t after(const Place& place) const;
  void awaitPlace(const Slice& slice, const Place& place);
  void enter(Accelerator::Stream stream, const Slice& slice);
  void leave(Accelerator::Stream stream, const Slice& slice);
  std::size_t streamOf(SliceId slice) const { return slice.sequence % accelerator_->streams(); }

  const std::uint64_t stagingBytes_;
  Slicing slicing_;
  const Accelerator::Memory device_;
  GatedRails rails_;
  SliceId nextSlice_{SliceQueue::Device, 0};
  std::uint64_t nextPlace_ = 0;
  std::deque<Used> used_;                           // in the order of slices
  const std::shared_ptr<Accelerator> accelerator_;  // ends first: it waits for all that is enqueued
};

}  // namespace fairring
