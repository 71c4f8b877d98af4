#include "exchange/progress_flags.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"

namespace fairring {

namespace {

constexpr std::size_t kAllLines = ProgressFlags::kLines * 2;  // of bulk, and of express
constexpr std::uint64_t kFlagsBytes = 64 << 10;               // before the staging; a multiple of every page size

}  // namespace

ProgressFlags::ProgressFlags(const std::vector<int>& ranks, int rank, std::uint64_t stagingBytes)
    : stagingBytes_(stagingBytes),
      own_(Segment::create(kFlagsBytes + stagingBytes)),
      doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      unattached_(ranks.begin(), ranks.end()) {
  static_assert(sizeof(Line) == alignof(Line));
  static_assert(sizeof(Line) * kAllLines + sizeof(Polling) <= kFlagsBytes);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free,
                "marks are shared between processes");
  if (!doorbell_) throw Failure(systemError("eventfd"));
  unattached_.erase(rank);
}

ProgressFlags::Line& ProgressFlags::lineOf(const Segment& segment, SliceId slice) {
  const std::size_t before = slice.queue == SliceQueue::HostExpress ? kLines : 0;
  return reinterpret_cast<Line*>(segment.data())[before + slice.sequence % kLines];
}

ProgressFlags::Polling& ProgressFlags::pollingOf(const Segment& segment) {
  return *reinterpret_cast<Polling*>(segment.data() + sizeof(Line) * kAllLines);
}

std::byte* ProgressFlags::stagingOf(const Segment& segment) { return segment.data() + kFlagsBytes; }

std::vector<int> ProgressFlags::descriptors() const { return {own_.descriptor(), doorbell_.get()}; }

void ProgressFlags::attach(int peer, std::vector<Descriptor> descriptors) {
  check(descriptors.size() == 2 && unattached_.contains(peer), ErrorKind::Connection, "rank ", peer, " handed over ",
        descriptors.size(), " descriptors, expected are 2 of a rank of this machine");
  ::fcntl(descriptors[1].get(), F_SETFL, O_NONBLOCK);  // whatever it is, a write to it never blocks the loop
  peers_[peer] = {Segment::attach(std::move(descriptors[0]), own_.bytes()), std::move(descriptors[1])};
  unattached_.erase(peer);
}

void ProgressFlags::publish(SliceId slice, const Published& published) {
  Line& line = lineOf(own_, slice);
  line.stagingOffset.store(published.stagingOffset, std::memory_order_relaxed);
  line.signature.store(published.signature, std::memory_order_relaxed);
  line.scale.store(published.scale, std::memory_order_relaxed);
  line.refused.store(published.refused, std::memory_order_relaxed);
  line.cachedCost.store(published.costs.cached, std::memory_order_relaxed);
  line.streamedCost.store(published.costs.streamed, std::memory_order_relaxed);
}

ProgressFlags::Published ProgressFlags::published(int peer, SliceId slice) const {
  const Line& line = lineOf(peers_.at(peer).segment, slice);
  return {line.stagingOffset.load(std::memory_order_relaxed),
          line.signature.load(std::memory_order_relaxed),
          line.scale.load(std::memory_order_relaxed),
          line.refused.load(std::memory_order_relaxed),
          {line.cachedCost.load(std::memory_order_relaxed), line.streamedCost.load(std::memory_order_relaxed)}};
}

void ProgressFlags::signal(Progress progress, SliceId slice) {
  (lineOf(own_, slice).*progress).store(slice.sequence + 1, std::memory_order_seq_cst);
}

// These are in one order with `polls` and `rung`: either I see that the peer has stopped polling, or that its doorbell
// has not been rung since it began to poll, or its poll sees my flags.
void ProgressFlags::ringDoorbells() {
  const std::uint64_t one = 1;
  for (const auto& [rank, peer] : peers_) {
    Polling& polling = pollingOf(peer.segment);
    if (polling.polls.load(std::memory_order_seq_cst) != 0) continue;
    if (polling.rung.exchange(1, std::memory_order_seq_cst) != 0) continue;
    [[maybe_unused]] const auto written = ::write(peer.doorbell.get(), &one, sizeof one);  // full: it is awake already
  }
}

std::set<int> ProgressFlags::behind(Progress progress, SliceId slice) const {
  std::set<int> ranks;
  for (const auto& [rank, peer] : peers_) {
    if ((lineOf(peer.segment, slice).*progress).load(std::memory_order_acquire) <= slice.sequence) ranks.insert(rank);
  }
  return ranks;
}

int ProgressFlags::someBehind(Progress progress, SliceId slice) const {
  for (const auto& [rank, peer] : peers_) {
    if ((lineOf(peer.segment, slice).*progress).load(std::memory_order_seq_cst) <= slice.sequence) return rank;
  }
  return -1;
}

std::size_t ProgressFlags::arrived(Progress progress, SliceId slice) const {
  std::size_t count = 0;
  for (const auto& [rank, peer] : peers_) {
    count += (lineOf(peer.segment, slice).*progress).load(std::memory_order_seq_cst) > slice.sequence ? 1 : 0;
  }
  return count;
}

bool ProgressFlags::has(int peer, Progress progress, SliceId slice) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ||
         (lineOf(found->second.segment, slice).*progress).load(std::memory_order_acquire) > slice.sequence;
}

void ProgressFlags::drainDoorbell() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(doorbell_.get(), &count, sizeof count);
  pollingOf(own_).rung.exchange(0, std::memory_order_seq_cst);  // a read too: I see the flags of peers that rang before
}

void ProgressFlags::setPolling(bool polling) {
  pollingOf(own_).polls.store(polling ? 1 : 0, std::memory_order_seq_cst);
}

}  // namespace fairring
