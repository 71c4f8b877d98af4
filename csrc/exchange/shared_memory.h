// The exchange of level 0 for CPU tensors: the ranks of one machine through shared memory.
//
//   reduce-scatter  fill my image with my tensor's slice; when all have done so, combine my shard straight from the
//                   peers' images into mine
//   all-gather      copy every rank's shard from its image into my tensor, each as soon as it is there
//   all-reduce      fill my image with all of my tensor's slice; when all have done so, combine everything from the
//                   images into my tensor
//   load, store     copy my own block into my image, or out of it
//   scatter         as a reduce-scatter of data that only the root has; on other machines there is nothing to do
//   gather          as an all-gather by the root only
//   all-to-all      fill my image with my data for all; combine the cells that go my way from all images
//
// Flags publish the ranks' progress with a slice (progress_flags.h). A slice's line of flags and its image are reused
// only when all peers have finished with them, so a flag is never overtaken. The slice's body says what is copied and
// summed (slice_body.h). On a machine with one rank the same steps are copies between the tensor and its image. On the
// loop only.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "base/loop.h"
#include "exchange/exchange.h"
#include "exchange/progress_flags.h"
#include "exchange/recorder.h"
#include "exchange/slice_body.h"
#include "exchange/store_choice.h"
#include "exchange/traffic.h"

namespace fairring {

class SharedMemory final : public Exchange {
 public:
  static constexpr std::size_t kMostSlices = ProgressFlags::kLines;  // of a class in flight

  // ranks: of this machine, ascending, with this one among them. Throws Failure(System) if there is no memory.
  SharedMemory(Loop& loop, std::vector<int> ranks, int rank, std::uint64_t stagingBytes, Troubles troubles);
  ~SharedMemory() override;

  ProgressFlags& flags() { return flags_; }
  void recordIn(Recorder& recorder) { recorder_ = &recorder; }  // before the first slice

  void admit(const std::shared_ptr<Slice>& slice) override;
  void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) override;
  std::set<int> missing() const override;
  using Exchange::needs;
  bool needs(int peer, const Watermarks& slicesBelow) const override;
  void stop() override;
  bool isAtRest() const { return slices_.empty(); }
  const Traffic& traffic() const { return traffic_; }  // read from peers' images
  std::vector<SliceRecord> underWay() const;           // steps that have begun and are not over

 private:
  enum class Phase { Admitted, Filling, Filled, Combining, Combined, Gathering, Gathered };
  struct InFlight {
    std::shared_ptr<Slice> slice;
    Phase phase = Phase::Admitted;
    std::size_t step = 0;
    Events events;
    PeerImages images;            // from the peers' flags, checked, once all have filled theirs
    std::size_t copies = 0;       // under way
    std::vector<int> ungathered;  // ranks whose shard has not been asked for yet
    std::size_t arrived = 0;      // peers whose flag for this phase was set at the last poll
    SliceRecord record;           // of its step
    bool hasCombined = false;
    std::chrono::nanoseconds::rep busy = 0;  // in ns
  };

  static bool hasRail(const InFlight& state) { return !state.slice->layout->at(0).rails.empty(); }
  std::set<int> waitingFor(const InFlight& state) const;
  static ProgressFlags::Progress awaited(const InFlight& state);
  bool poll();
  void recordEnd(InFlight& state);

  void run(InFlight& state, Job job, void (SharedMemory::*then)(InFlight&));
  void publish(const Slice& slice);
  void signal(ProgressFlags::Progress progress, SliceId slice);
  void ringDoorbells();
  void prepare(InFlight& state);
  void fill(InFlight& state);
  void filled(InFlight& state);
  void combine(InFlight& state);
  void combined(InFlight& state);
  bool isMeasured(const InFlight& state) const;  // for the choice of stores
  static bool isAllReduce(const InFlight& state);
  void delivered(InFlight& state);
  void load(InFlight& state);
  void loaded(InFlight& state);
  void store(InFlight& state);
  void gather(InFlight& state);
  bool gatherWhatIsThere(InFlight& state);
  void gatherFrom(int rank, const InFlight& state, std::vector<Copy>& copies);
  void copied(InFlight& state);
  void advance(SliceId slice);
  void advanceAll();
  bool readFlags(InFlight& state);
  bool readMark(int rank, InFlight& state);
  static void enter(InFlight& state, Phase phase);
  static void raise(InFlight& state, Phase phase);
  void raiseAndRelease(InFlight& state, Phase phase);

  Loop& loop_;
  const std::vector<int> ranks_;
  const int rank_;
  ProgressFlags flags_;
  std::map<SliceId, InFlight> slices_;
  Traffic traffic_;
  StoreChoice stores_;
  Recorder* recorder_ = nullptr;  // null if there is none
  bool signalled_ = false;        // in this turn, and no peer was woken for it
};

}  // namespace fairring
