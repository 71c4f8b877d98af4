// The exchange of level 0 for CPU tensors: the ranks of one machine through shared memory.
//
//   reduce-scatter  copy my tensor's slice into my image (my own shard stays where it is); when all have done so, sum
//                   my shard straight from the peers' images into mine
//   all-gather      copy every rank's shard from its image into my tensor, each as soon as it is there
//   load, store     copy my own block into my image, or out of it
//
// How far the ranks are with a slice they tell each other by flags (progress_flags.h). A slice's line of flags and its
// image are used again only when all peers have finished with them, so a flag is never overtaken. Of a sparse call each
// rank copies the rows that it has, packed, and sums those that any has (sparse_rows.h). On a machine with one rank the
// same steps are copies between the tensor and its image. On the loop only.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/loop.h"
#include "exchange/exchange.h"
#include "exchange/progress_flags.h"
#include "exchange/summation.h"
#include "exchange/traffic.h"

namespace fairring {

class SharedMemory final : public Exchange {
 public:
  static constexpr std::size_t kMostSlices = ProgressFlags::kLines;  // of a class in flight

  // ranks: of this machine, ascending, with this one among them. Throws Failure(System) if there is no memory.
  SharedMemory(Loop& loop, std::vector<int> ranks, int rank, std::uint64_t stagingBytes, Troubles troubles);
  ~SharedMemory() override;

  ProgressFlags& flags() { return flags_; }

  void admit(const std::shared_ptr<Slice>& slice) override;
  void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) override;
  std::set<int> missing() const override;
  using Exchange::needs;
  bool needs(int peer, const ByTrafficClass<std::uint64_t>& slicesBelow) const override;
  void leave(int peer) override;
  void stop() override;
  const Traffic& traffic() const { return traffic_; }  // read from peers' images

 private:
  struct Image {  // a peer's, as its flag says, checked
    const std::byte* data;
    double scale;
  };
  enum class Phase { Admitted, Filling, Filled, Summing, Summed, Gathering, Gathered };
  struct InFlight {
    std::shared_ptr<Slice> slice;
    Phase phase = Phase::Admitted;
    std::size_t step = 0;
    Events events;
    std::map<int, Image> images;  // of the peers, once all have filled theirs
    std::size_t copies = 0;       // under way
    std::vector<int> ungathered;  // ranks whose shard has not been asked for yet
    std::size_t arrived = 0;      // peers whose flag for this phase stood when it was last polled
  };

  const Rail* railOf(const InFlight& state) const;
  std::set<int> waitingFor(const InFlight& state) const;
  static ProgressFlags::Progress awaited(const InFlight& state);
  bool poll();

  void publish(const Slice& slice);
  void signal(ProgressFlags::Progress progress, std::uint64_t slice);
  void ringDoorbells();
  void prepare(InFlight& state);
  void fill(InFlight& state);
  void sum(InFlight& state);
  void addSum(Sums& sums, const InFlight& state, const Portion& portion, const std::vector<int>& owners) const;
  static std::optional<Copy> copyOfRows(const Slice& slice, const Range& shard);
  void sumRows(InFlight& state);
  void summed(std::uint64_t slice);
  void load(InFlight& state);
  void store(InFlight& state);
  void gather(InFlight& state);
  bool gatherWhatIsThere(InFlight& state);
  void gatherFrom(int rank, const InFlight& state, std::vector<Copy>& copies);
  void advance(std::uint64_t slice);
  void advanceAll();
  bool readFlags(InFlight& state);
  bool readMark(int rank, InFlight& state);
  static void enter(InFlight& state, Phase phase);
  static void raise(InFlight& state, Phase phase);

  Loop& loop_;
  const std::vector<int> ranks_;
  const int rank_;
  const Troubles troubles_;
  ProgressFlags flags_;
  std::map<std::uint64_t, InFlight> slices_;
  std::set<int> left_;
  Traffic traffic_;
  bool signalled_ = false;  // in this turn, and nobody was woken for it
  bool stopped_ = false;
};

}  // namespace fairring
