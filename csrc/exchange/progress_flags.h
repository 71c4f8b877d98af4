// The shared memory of a machine's ranks. Each rank has a segment, which begins with progress flags: one line per slice
// in flight, written only by that rank and read by all, shows its progress with the slice. Its staging follows. A rank
// that has moved its flags wakes its peers by their eventfds, except those that are polling.
// On the loop only.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/descriptor.h"
#include "exchange/segment.h"
#include "exchange/slice_id.h"
#include "exchange/store_choice.h"

namespace fairring {

class ProgressFlags {
 public:
  static constexpr std::size_t kLines = 64;  // per queue of the host: its slice n uses line n mod 64

  // A rank's progress: the sequence number of the last slice of this line that got there, plus one.
  struct alignas(64) Line {
    std::atomic<std::uint64_t> filled;    // its image may be read
    std::atomic<std::uint64_t> summed;    // its shard of the image is the result
    std::atomic<std::uint64_t> finished;  // it does not read the others' images any more
    // Valid once filled. Read once, and used as read: the peer may write them again.
    std::atomic<std::uint64_t> stagingOffset;  // of its image
    std::atomic<std::uint64_t> signature;      // of its call
    std::atomic<double> scale;                 // of its elements
    std::atomic<std::uint32_t> refused;        // as Slice has it; published anew before `summed`
    std::atomic<float> cachedCost;             // StoreCosts
    std::atomic<float> streamedCost;
  };
  using Progress = std::atomic<std::uint64_t> Line::*;

  // The values that a peer has published for one slice. They are unchecked: the reader must check that they are valid.
  struct Published {
    std::uint64_t stagingOffset;
    std::uint64_t signature;
    double scale;
    std::uint32_t refused;
    StoreCosts costs;
  };

  // ranks: of this machine, with this one among them. Throws Failure(System) if there is no memory.
  ProgressFlags(const std::vector<int>& ranks, int rank, std::uint64_t stagingBytes);

  std::vector<int> descriptors() const;                        // to be passed to each peer: the segment and the eventfd
  void attach(int peer, std::vector<Descriptor> descriptors);  // as received; Failure(Connection) if they are not right
  const std::set<int>& unattached() const { return unattached_; }  // peers that have not passed theirs yet

  std::byte* staging() const { return stagingOf(own_); }
  std::byte* stagingOf(int peer) const { return stagingOf(peers_.at(peer).segment); }
  std::uint64_t stagingBytes() const { return stagingBytes_; }  // of every rank

  void publish(SliceId slice, const Published& published);  // before `filled` is signalled, and before `summed`
  Published published(int peer, SliceId slice) const;       // once that peer has filled
  void signal(Progress progress, SliceId slice);            // polling peers see it; ringDoorbells() for the others
  void ringDoorbells();
  std::set<int> behind(Progress progress, SliceId slice) const;  // peers
  int someBehind(Progress progress, SliceId slice) const;        // one of these; -1: there is none
  std::size_t arrived(Progress progress, SliceId slice) const;   // how many peers are not behind
  bool haveAll(Progress progress, SliceId slice) const { return someBehind(progress, slice) < 0; }
  bool has(int peer, Progress progress, SliceId slice) const;  // this rank always has

  int doorbell() const { return doorbell_.get(); }  // readable when some peer has moved on
  void drainDoorbell();
  // While this rank polls, no peer wakes it. One poll has to follow when polling stops.
  void setPolling(bool polling);

 private:
  // Behind the flags.
  struct alignas(64) Polling {
    std::atomic<std::uint32_t> polls;
    std::atomic<std::uint32_t> rung;  // its eventfd was, or is about to be, written, and it has not polled since
  };
  struct Peer {
    Segment segment;
    Descriptor doorbell;
  };

  static Line& lineOf(const Segment& segment, SliceId slice);
  static Polling& pollingOf(const Segment& segment);
  static std::byte* stagingOf(const Segment& segment);

  const std::uint64_t stagingBytes_;
  Segment own_;
  Descriptor doorbell_;
  std::set<int> unattached_;
  std::map<int, Peer> peers_;
};

}  // namespace fairring
