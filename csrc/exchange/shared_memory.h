// The exchange of level 0 for CPU tensors: the ranks of one machine through shared memory.
//
//   reduce-scatter  copy my tensor's slice into my image (my own shard stays where it is); when all have done so, sum
//                   my shard straight from the peers' images into mine
//   all-gather      copy every rank's shard from its image into my tensor, each as soon as it is there
//
// Each rank's segment begins with marks, one line per slice in flight, which only that rank writes and all read: how
// far it has come with that slice. Whoever moves on wakes its peers through their eventfds, but for those that look by
// themselves. A slice's line and image
// are used again only when all peers have finished with them, so a mark is never overtaken.
// On a machine with one rank the same steps are copies between the tensor and its image.
// On the loop only.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "base/descriptor.h"
#include "base/loop.h"
#include "exchange/exchange.h"
#include "exchange/segment.h"

namespace fairring {

class SharedMemory final : public Exchange {
 public:
  static constexpr std::size_t kMostSlices = 64;  // in flight: as many as there are marks

  // ranks: of this machine, ascending, with this one among them. Throws Failure(System) if there is no memory.
  SharedMemory(Loop& loop, std::vector<int> ranks, int rank, std::uint64_t stagingBytes, Troubles troubles);
  ~SharedMemory() override;

  std::byte* staging() const;                                  // of this rank
  std::vector<int> descriptors() const;                        // to be handed to each peer: the segment and the eventfd
  void attach(int peer, std::vector<Descriptor> descriptors);  // as received; Failure(Connection) if they are not right
  std::set<int> unattached() const;                            // peers that have not handed theirs over

  void admit(const std::shared_ptr<Slice>& slice) override;
  void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) override;
  std::set<int> missing() const override;
  bool needs(int peer, std::uint64_t slicesBelow) const override;
  void leave(int peer) override;
  void stop() override;

 private:
  // How far a rank has come: the number of the last slice of this line that did, plus one.
  struct alignas(64) Mark {
    std::atomic<std::uint64_t> filled;    // its image may be read
    std::atomic<std::uint64_t> summed;    // its shard of the image is the result
    std::atomic<std::uint64_t> finished;  // it does not read the others' images any more
    // Valid once filled. Read once, and used as they were then: whoever writes here may write again.
    std::atomic<std::uint64_t> stagingOffset;  // of its image
    std::atomic<std::uint64_t> signature;      // of its call
    std::atomic<double> scale;                 // of its elements
  };
  // Behind the marks: whether a rank looks at its peers' marks by itself, and need not be woken.
  struct alignas(64) Attention {
    std::atomic<std::uint32_t> looks;
  };
  struct Peer {
    Segment segment;
    Descriptor wakeUp;
  };
  struct Image {  // a peer's, as its mark says, checked
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
    std::set<int> ungathered;     // ranks whose shard has not been asked for yet
    std::size_t arrived = 0;      // peers whose mark for this phase stood when it was last looked at
  };

  Mark& markOf(int rank, std::uint64_t slice) const;
  Attention& attentionOf(const Segment& segment) const;
  const Rail* railOf(const InFlight& state) const;
  std::set<int> behind(std::atomic<std::uint64_t> Mark::* mark, std::uint64_t slice) const;
  std::set<int> waitingFor(const InFlight& state) const;
  static std::atomic<std::uint64_t> Mark::* awaited(Phase phase);
  bool look();
  void tell(std::atomic<std::uint64_t> Mark::* mark, std::uint64_t slice);

  void fill(InFlight& state);
  void sum(InFlight& state);
  void gather(InFlight& state);
  void gatherWhatIsThere(InFlight& state);
  void advance(std::uint64_t slice);
  void advanceAll();
  bool readMarks(InFlight& state);
  static void enter(InFlight& state, Phase phase);
  static void raise(InFlight& state, Phase phase);

  Loop& loop_;
  const std::vector<int> ranks_;
  const int rank_;
  const Troubles troubles_;
  Segment own_;
  Descriptor wakeUp_;
  std::map<int, Peer> peers_;
  std::map<std::uint64_t, InFlight> slices_;
  std::set<int> left_;
  bool stopped_ = false;
};

}  // namespace fairring
