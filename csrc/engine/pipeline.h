// The pipeline: takes calls in order, cuts them into slices, and moves each slice through the steps of its plan.
// A slice is data, (plan, step, phase, place in staging); run() moves on what has become due. Two rules keep it free of
// deadlock: staging is taken in slice order, and steps of one level and direction begin in slice order. So the oldest
// slice never waits for a later one, on any rank. Small calls, and calls on a device, have queues of their own
// (slice_id.h), with staging of their own: no slice waits for one of another queue. Owner of the loop's progress only.
// Knows no network, no processes and no device: the exchanges do.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/call.h"
#include "engine/slicing.h"
#include "engine/staging.h"
#include "exchange/exchange.h"
#include "exchange/recorder.h"
#include "plan/planner.h"

namespace fairring {

class Pipeline {
 public:
  struct Levels {            // the exchanges that carry out the steps
    Exchange* machine;       // level 0
    Exchange* rails;         // those above; null where there are none
    std::size_t mostSlices;  // of a queue in flight
    std::byte* staging;
    std::uint64_t stagingBytes;
    std::uint64_t expressBytes = 0;  // of staging behind these, for small calls; 0: they have no queue of their own
    // The machine has this rank alone, and a step of the rails ends when its memory is let go: so when a call has
    // ended, nobody touches its tensor any more, and it may be a slice's image.
    bool tensorsMayBeImages = false;
    Recorder* recorder = nullptr;  // of waits for staging, where there is one
    SliceBodies bodies = {};
  };

  Pipeline(const Planner& planner, int rank, const Levels& levels);

  // Staging of small calls, beside so much for the others.
  static std::uint64_t expressBytesBeside(std::uint64_t stagingBytes);
  // Staging of a group on this rank, with that part.
  static std::uint64_t allStagingBytes(std::uint64_t stagingBytes) {
    return stagingBytes + expressBytesBeside(stagingBytes);
  }

  // signature: of this call and all before it, to be compared with the peers'.
  void submit(Call call, std::uint64_t signature);
  // Calls on a device come cut: its streams have to know where slices lie before this thread hears of them. `device`
  // carries out all of their steps.
  void attach(Exchange& device) { device_ = &device; }
  void submitOnDevice(Call call);  // whose slices follow, in the order of their numbers
  // The place of such a slice in the device's staging, which its caller has allotted.
  struct Placement {
    std::uint64_t bytes;
    std::uint64_t after;  // the number below which all slices have to be released first: they have had the place before
    bool last;            // of its call
  };
  void add(std::shared_ptr<Slice> slice, const Placement& placement);
  // The inputs of a call may be there.
  void resume() { run(); }
  void open();  // from now on slices move; before, calls only queue
  // No further step begins, and calls only queue, until fail() ends them.
  void halt() { open_ = false; }
  void fail(const Error& error);  // the exchanges have been stopped

  const Rounding& rounding() const { return slicing_.rounding(); }
  bool hasCalls(SliceQueue queue) const;
  bool awaitsInputs(std::uint64_t call) const;  // of that number
  bool isAtRest() const;                        // no call, no slice, and no staging taken
  Watermarks completed() const;
  bool hasBegun(const Watermarks& slicesBelow) const;
  // The numbers of the calls that have written nothing into their tensors.
  std::set<std::uint64_t> untouched() const;
  const Call* oldestCall() const { return calls_.empty() ? nullptr : &calls_.front()->call; }
  std::function<void()> onNextProgress;  // called once: some step became ready, or was released

 private:
  enum class Phase { Waiting, Running, Finished };
  struct Pending {  // a call, or one of its parts, until all of its slices are finished
    Call call;
    std::uint64_t signature = 0;
    SliceQueue queue = SliceQueue::HostBulk;
    // Until its size is known, neither this part nor any behind it can be cut.
    CallPart part = {};
    std::uint64_t cutBytes = 0;  // of each row, that are in slices already
    std::size_t unfinished = 0;  // slices under way
    std::uint32_t refused = 0;   // as Slice has it, of those that are finished
    bool isCut = false;          // completely
    bool isTouched = false;      // something may have been written into its tensors
    // Called instead of the call's `done` by all its parts but the last; `refused` as in Slice.
    std::function<void(std::uint32_t refused)> next = nullptr;
  };
  struct InFlight {
    std::shared_ptr<Slice> slice;
    std::shared_ptr<Pending> call;
    std::size_t step = 0;
    Phase phase = Phase::Waiting;
    std::size_t unreleased;
  };
  struct Queue {
    StagingRing ring;
    std::byte* staging;
    SliceId next;
    std::uint64_t completed = 0;                      // slices
    std::deque<std::shared_ptr<Pending>> uncut = {};  // calls, in order
    std::map<SliceId, InFlight> inFlight = {};
    std::int64_t waitsSince = 0;  // the next slice, for staging or a mark; 0: it does not
  };
  struct Turn {  // steps that begin in slice order
    SliceQueue queue;
    int level;
    bool up;
    auto operator<=>(const Turn&) const = default;
  };

  void submitInParts(Call call, std::uint64_t signature);
  bool isHeardRefusing(const Call& call) const;
  bool missesWhatIsRefused(const Call& call) const;
  std::shared_ptr<Pending> enqueue(Pending pending);
  void drop(const std::shared_ptr<Pending>& part);
  void run();
  static bool awaitsInputs(const Pending& pending) { return pending.call.inputs && !pending.call.inputs->isThere(); }
  bool cutNext(Queue& queue);
  bool takeNext();
  void begin(Queue& queue, const std::shared_ptr<Pending>& pending, const std::shared_ptr<Slice>& slice);
  std::shared_ptr<Slice> nextSlice(const Queue& queue, const Pending& pending);
  bool hasMark(const Queue& queue) const;
  bool waitsForStaging(Queue& queue) const;
  void recordStaging(Queue& queue, const Slice& slice, std::uint64_t bytes) const;
  Queue& queueOf(SliceQueue queue) { return queues_[static_cast<std::size_t>(queue)]; }
  SliceQueue queueFor(const CallPart& part) const;
  void beginNext(SliceId id);
  void onReady(SliceId id);
  void onReleased(SliceId id);
  std::byte* tensorAsImage(const Slice& slice, const Pending& pending) const;
  void end(const InFlight& slice);
  void finish(const std::shared_ptr<Pending>& call);
  void admit(const std::shared_ptr<Slice>& slice);
  Exchange& exchangeOf(SliceQueue queue, const Step& step) const;
  static Turn turnOf(SliceId slice, const Step& step) {
    return {slice.queue, step.level, gathers(step.verb) || step.verb == Verb::Store};
  }

  const Planner& planner_;
  const int rank_;
  const Levels levels_;
  Slicing slicing_;
  std::array<Queue, kSliceQueues.size()> queues_;  // as SliceQueue numbers them
  Exchange* device_ = nullptr;
  std::deque<std::pair<std::shared_ptr<Slice>, Placement>> placed_;  // of the device, that wait for their places
  std::deque<std::shared_ptr<Pending>> calls_;  // in order; the first may be finished before its predecessors' releases
  std::map<Turn, std::deque<SliceId>> notBegun_;  // slices that have such a step before them, in order
  std::deque<SliceId> due_;                       // slices whose next step may be the next of its turn
  bool open_ = false;
  bool running_ = false;
};

}  // namespace fairring
