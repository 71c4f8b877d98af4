#include "exchange/marks.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/order.h"

namespace fairring {

namespace {

constexpr std::size_t kAllLines = Marks::kLines * kOrders.size();
constexpr std::uint64_t kMarksBytes = 64 << 10;  // before the staging; a multiple of any page size in use

}  // namespace

Marks::Marks(const std::vector<int>& ranks, int rank, std::uint64_t stagingBytes)
    : stagingBytes_(stagingBytes),
      own_(Segment::create(kMarksBytes + stagingBytes)),
      wakeUp_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      unattached_(ranks.begin(), ranks.end()) {
  static_assert(sizeof(Mark) * kAllLines + sizeof(Attention) <= kMarksBytes);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free,
                "marks are shared between processes");
  if (!wakeUp_) throw Failure(systemError("eventfd"));
  unattached_.erase(rank);
}

Marks::Mark& Marks::lineOf(const Segment& segment, std::uint64_t slice) {
  const std::size_t before = orderOf(slice) == Order::Express ? kLines : 0;
  return reinterpret_cast<Mark*>(segment.data())[before + placeOf(slice) % kLines];
}

Marks::Attention& Marks::attentionOf(const Segment& segment) {
  return *reinterpret_cast<Attention*>(segment.data() + sizeof(Mark) * kAllLines);
}

std::byte* Marks::stagingOf(const Segment& segment) { return segment.data() + kMarksBytes; }

std::vector<int> Marks::descriptors() const { return {own_.descriptor(), wakeUp_.get()}; }

void Marks::attach(int peer, std::vector<Descriptor> descriptors) {
  check(descriptors.size() == 2 && unattached_.contains(peer), ErrorKind::Connection, "rank ", peer, " handed over ",
        descriptors.size(), " descriptors, expected are 2 of a rank of this machine");
  ::fcntl(descriptors[1].get(), F_SETFL, O_NONBLOCK);  // whatever it is, writing to it never holds up the loop
  peers_[peer] = {Segment::attach(std::move(descriptors[0]), own_.bytes()), std::move(descriptors[1])};
  unattached_.erase(peer);
}

void Marks::say(std::uint64_t slice, const Said& said) {
  Mark& mark = lineOf(own_, slice);
  mark.stagingOffset.store(said.stagingOffset, std::memory_order_relaxed);
  mark.signature.store(said.signature, std::memory_order_relaxed);
  mark.scale.store(said.scale, std::memory_order_relaxed);
  mark.refused.store(said.refused, std::memory_order_relaxed);
}

Marks::Said Marks::said(int peer, std::uint64_t slice) const {
  const Mark& mark = lineOf(peers_.at(peer).segment, slice);
  return {mark.stagingOffset.load(std::memory_order_relaxed), mark.signature.load(std::memory_order_relaxed),
          mark.scale.load(std::memory_order_relaxed), mark.refused.load(std::memory_order_relaxed)};
}

void Marks::tell(Progress progress, std::uint64_t slice) {
  (lineOf(own_, slice).*progress).store(slice + 1, std::memory_order_seq_cst);
}

// In one order with `looks` and `rung`: either I see that the peer does not look any more, or that nobody has rung
// since it began to look, or its look sees my marks.
void Marks::ring() {
  const std::uint64_t one = 1;
  for (const auto& [rank, peer] : peers_) {
    Attention& attention = attentionOf(peer.segment);
    if (attention.looks.load(std::memory_order_seq_cst) != 0) continue;
    if (attention.rung.exchange(1, std::memory_order_seq_cst) != 0) continue;
    [[maybe_unused]] const auto written = ::write(peer.wakeUp.get(), &one, sizeof one);  // full: it is awake already
  }
}

std::set<int> Marks::behind(Progress progress, std::uint64_t slice) const {
  std::set<int> ranks;
  for (const auto& [rank, peer] : peers_) {
    if ((lineOf(peer.segment, slice).*progress).load(std::memory_order_acquire) <= slice) ranks.insert(rank);
  }
  return ranks;
}

std::size_t Marks::arrived(Progress progress, std::uint64_t slice) const {
  std::size_t count = 0;
  for (const auto& [rank, peer] : peers_) {
    count += (lineOf(peer.segment, slice).*progress).load(std::memory_order_seq_cst) > slice ? 1 : 0;
  }
  return count;
}

bool Marks::has(int peer, Progress progress, std::uint64_t slice) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ||
         (lineOf(found->second.segment, slice).*progress).load(std::memory_order_acquire) > slice;
}

void Marks::quiet() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(wakeUp_.get(), &count, sizeof count);
  attentionOf(own_).rung.exchange(0, std::memory_order_seq_cst);  // read too: so I see the marks of who found it rung
}

void Marks::setLooking(bool looking) { attentionOf(own_).looks.store(looking ? 1 : 0, std::memory_order_seq_cst); }

}  // namespace fairring
