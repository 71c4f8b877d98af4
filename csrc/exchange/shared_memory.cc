#include "exchange/shared_memory.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cassert>

#include "exchange/summation.h"

namespace fairring {

namespace {

constexpr std::uint64_t kMarksBytes = 64 << 10;  // before the staging; a multiple of any page size in use

}  // namespace

SharedMemory::SharedMemory(Loop& loop, std::vector<int> ranks, int rank, std::uint64_t stagingBytes, Troubles troubles)
    : loop_(loop),
      ranks_(std::move(ranks)),
      rank_(rank),
      troubles_(std::move(troubles)),
      own_(Segment::create(kMarksBytes + stagingBytes)),
      wakeUp_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  static_assert(sizeof(Mark) * kMostSlices + sizeof(Attention) <= kMarksBytes);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free,
                "marks are shared between processes");
  assert(loop_.isCurrent());
  if (!wakeUp_) throw Failure(systemError("eventfd"));
  loop_.watch(wakeUp_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wakeUp_.get(), &count, sizeof count);
    advanceAll();
  });
  loop_.lookOut(this,
                {[this] { return look(); },
                 [this](bool looks) { attentionOf(own_).looks.store(looks ? 1 : 0, std::memory_order_seq_cst); }});
}

SharedMemory::~SharedMemory() {
  loop_.forgetLookout(this);
  loop_.unwatch(wakeUp_.get());
  loop_.dropWork(this);
}

void SharedMemory::stop() {
  stopped_ = true;
  loop_.dropWork(this);
  for (const auto& [number, state] : slices_) {
    if (state.phase != Phase::Gathered) loop_.await(-1);
  }
  slices_.clear();
}

std::byte* SharedMemory::staging() const { return own_.data() + kMarksBytes; }

std::vector<int> SharedMemory::descriptors() const { return {own_.descriptor(), wakeUp_.get()}; }

void SharedMemory::attach(int peer, std::vector<Descriptor> descriptors) {
  check(descriptors.size() == 2 && unattached().contains(peer), ErrorKind::Connection, "rank ", peer, " handed over ",
        descriptors.size(), " descriptors, expected are 2 of a rank of this machine");
  ::fcntl(descriptors[1].get(), F_SETFL, O_NONBLOCK);  // whatever it is, writing to it never holds up the loop
  peers_[peer] = {Segment::attach(std::move(descriptors[0]), own_.bytes()), std::move(descriptors[1])};
}

std::set<int> SharedMemory::unattached() const {
  std::set<int> peers(ranks_.begin(), ranks_.end());
  peers.erase(rank_);
  for (const auto& [rank, peer] : peers_) peers.erase(rank);
  return peers;
}

SharedMemory::Mark& SharedMemory::markOf(int rank, std::uint64_t slice) const {
  const Segment& segment = rank == rank_ ? own_ : peers_.at(rank).segment;
  return reinterpret_cast<Mark*>(segment.data())[slice % kMostSlices];
}

SharedMemory::Attention& SharedMemory::attentionOf(const Segment& segment) const {
  return *reinterpret_cast<Attention*>(segment.data() + sizeof(Mark) * kMostSlices);
}

const Rail* SharedMemory::railOf(const InFlight& state) const {
  const LevelLayout& level = state.slice->layout->at(0);
  return level.rails.empty() ? nullptr : &level.rails.front();
}

std::set<int> SharedMemory::behind(std::atomic<std::uint64_t> Mark::* mark, std::uint64_t slice) const {
  std::set<int> ranks;
  for (const auto& [rank, peer] : peers_) {
    if ((markOf(rank, slice).*mark).load(std::memory_order_acquire) <= slice) ranks.insert(rank);
  }
  return ranks;
}

void SharedMemory::tell(std::atomic<std::uint64_t> Mark::* mark, std::uint64_t slice) {
  // In one order with looks: either I see that the peer does not look any more, or its last look sees my mark.
  (markOf(rank_, slice).*mark).store(slice + 1, std::memory_order_seq_cst);
  const std::uint64_t one = 1;
  for (const auto& [rank, peer] : peers_) {
    if (attentionOf(peer.segment).looks.load(std::memory_order_seq_cst) != 0) continue;
    [[maybe_unused]] const auto written = ::write(peer.wakeUp.get(), &one, sizeof one);  // full: it is awake already
  }
}

void SharedMemory::admit(const std::shared_ptr<Slice>& slice) {
  assert(loop_.isCurrent() && slices_.size() < kMostSlices);
  InFlight state;
  state.slice = slice;
  slices_.emplace(slice->number, std::move(state));
  loop_.await(1);
  for (const int peer : std::set<int>(left_)) leave(peer);
}

void SharedMemory::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  assert(loop_.isCurrent() && !stopped_);
  InFlight& state = slices_.at(slice->number);
  state.step = step;
  state.events = std::move(events);
  if ((*slice->plan)[step].verb == Verb::ReduceScatter) {
    fill(state);
  } else {
    gather(state);
  }
}

// All but my own shard, which nobody else reads.
void SharedMemory::fill(InFlight& state) {
  enter(state, Phase::Filling);
  const Slice& slice = *state.slice;
  std::vector<Sum> copies;
  if (const Rail* rail = railOf(state)) {
    for (std::size_t i = 0; i < rail->owners.size(); ++i) {
      const Range shard = rail->shards[i];
      if (static_cast<int>(i) == rail->self || shard.size() == 0) continue;
      const std::uint64_t offset = slice.byteOffset(shard.begin);
      copies.push_back({slice.image + offset, {{slice.user + offset}}, shard.size()});
    }
  }
  const std::uint64_t number = slice.number;
  sumInPieces(loop_, this, number, {.dtype = slice.reduction.dtype}, std::move(copies), [this, number] {
    InFlight& filled = slices_.at(number);
    enter(filled, Phase::Filled);
    Mark& mark = markOf(rank_, number);
    mark.stagingOffset.store(filled.slice->stagingOffset, std::memory_order_relaxed);
    mark.signature.store(filled.slice->signature, std::memory_order_relaxed);
    mark.scale.store(filled.slice->scale, std::memory_order_relaxed);
    tell(&Mark::filled, number);
    advance(number);
  });
}

void SharedMemory::sum(InFlight& state) {
  enter(state, Phase::Summing);
  const Slice& slice = *state.slice;
  std::vector<Sum> sums;
  const Rail* rail = railOf(state);
  if (rail != nullptr && rail->shards[static_cast<std::size_t>(rail->self)].size() > 0) {
    const Range shard = rail->shards[static_cast<std::size_t>(rail->self)];
    const std::uint64_t offset = slice.byteOffset(shard.begin);
    Sum sum{.out = slice.image + offset, .inputs = {}, .elements = shard.size()};
    for (const int owner : rail->owners) {
      const Image from = owner == rank_ ? Image{slice.user, slice.scale} : state.images.at(owner);
      sum.inputs.push_back({from.data + offset, from.scale});
    }
    sums.push_back(std::move(sum));
  }
  const std::uint64_t number = slice.number;
  sumInPieces(loop_, this, number, slice.reductionOf(state.step), std::move(sums), [this, number] {
    InFlight& summed = slices_.at(number);
    const auto released = summed.events.released;
    raise(summed, Phase::Summed);
    if (!stopped_) released();  // the image stays in use until the all-gather is released
  });
}

void SharedMemory::gather(InFlight& state) {
  enter(state, Phase::Gathering);
  if (railOf(state) != nullptr) state.ungathered.insert(ranks_.begin(), ranks_.end());
  tell(&Mark::summed, state.slice->number);
  advance(state.slice->number);
}

void SharedMemory::enter(InFlight& state, Phase phase) {
  state.phase = phase;
  state.arrived = 0;
}

void SharedMemory::raise(InFlight& state, Phase phase) {
  enter(state, phase);
  const auto ready = std::move(state.events.ready);
  ready();
}

// What the others say of their images, before anything is read there. False where it can't be true.
bool SharedMemory::readMarks(InFlight& state) {
  const Slice& slice = *state.slice;
  const std::uint64_t imageBytes = slice.byteOffset(slice.layout->elements);
  for (const auto& [rank, peer] : peers_) {
    const Mark& mark = markOf(rank, slice.number);
    const std::uint64_t offset = mark.stagingOffset.load(std::memory_order_relaxed);
    if (mark.signature.load(std::memory_order_relaxed) != slice.signature) {
      troubles_.differs(rank);
      return false;
    }
    const std::uint64_t stagingBytes = peer.segment.bytes() - kMarksBytes;
    if (offset > stagingBytes || imageBytes > stagingBytes - offset) {
      troubles_.failed(makeError(ErrorKind::Connection, "rank ", rank, " says its image of slice ", slice.number,
                                 " lies at ", offset, " of ", stagingBytes, " bytes, which leaves no room for ",
                                 imageBytes));
      return false;
    }
    const double scale = mark.scale.load(std::memory_order_relaxed);
    state.images[rank] = {peer.segment.data() + kMarksBytes + offset, scale};
  }
  return true;
}

void SharedMemory::advance(std::uint64_t number) {
  const auto found = slices_.find(number);
  if (found == slices_.end()) return;
  InFlight& state = found->second;
  if (state.phase == Phase::Filled && behind(&Mark::filled, number).empty()) {
    if (readMarks(state)) sum(state);
    return;
  }
  if (state.phase == Phase::Gathering) {
    gatherWhatIsThere(state);
    if (state.copies > 0 || !state.ungathered.empty()) return;
    tell(&Mark::finished, number);
    loop_.await(-1);
    raise(state, Phase::Gathered);
    if (stopped_) return;
  }
  if (state.phase == Phase::Gathered && behind(&Mark::finished, number).empty()) {
    const auto released = std::move(state.events.released);
    slices_.erase(number);
    released();
  }
}

void SharedMemory::gatherWhatIsThere(InFlight& state) {
  const Slice& slice = *state.slice;
  const std::set<int> late = behind(&Mark::summed, slice.number);
  std::vector<Sum> copies;
  for (const int rank : std::set<int>(state.ungathered)) {
    if (late.contains(rank)) continue;
    state.ungathered.erase(rank);
    const Rail& rail = *railOf(state);
    const Range shard =
        rail.shards[static_cast<std::size_t>(std::ranges::find(rail.owners, rank) - rail.owners.begin())];
    const std::uint64_t offset = slice.byteOffset(shard.begin);
    const std::byte* image = rank == rank_ ? slice.image : state.images.at(rank).data;
    if (shard.size() > 0) copies.push_back({slice.user + offset, {{image + offset}}, shard.size()});
  }
  if (copies.empty()) return;
  ++state.copies;
  sumInPieces(loop_, this, slice.number, {.dtype = slice.reduction.dtype}, std::move(copies),
              [this, number = slice.number] {
                --slices_.at(number).copies;
                advance(number);
              });
}

void SharedMemory::advanceAll() {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(slices_.size());
  for (const auto& [number, state] : slices_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    if (!stopped_) advance(number);
  }
  for (const int peer : std::set<int>(left_)) {
    if (!stopped_) leave(peer);
  }
}

// The mark of the others that stands between a slice and its next phase.
std::atomic<std::uint64_t> SharedMemory::Mark::* SharedMemory::awaited(Phase phase) {
  switch (phase) {
    case Phase::Admitted:
    case Phase::Filling:
    case Phase::Filled: return &Mark::filled;
    case Phase::Summing: return nullptr;
    case Phase::Summed:
    case Phase::Gathering: return &Mark::summed;
    case Phase::Gathered: return &Mark::finished;
  }
  return nullptr;
}

std::set<int> SharedMemory::waitingFor(const InFlight& state) const {
  const auto mark = awaited(state.phase);
  return mark == nullptr ? std::set<int>() : behind(mark, state.slice->number);
}

// True where some peer has moved on since the last look. Allocates nothing: this is what a caller spins on.
bool SharedMemory::look() {
  bool moved = false;
  for (auto& [number, state] : slices_) {
    if (state.phase != Phase::Filled && state.phase != Phase::Gathering && state.phase != Phase::Gathered) continue;
    const auto mark = awaited(state.phase);
    std::size_t arrived = 0;
    for (const auto& [rank, peer] : peers_) {
      arrived += (markOf(rank, number).*mark).load(std::memory_order_seq_cst) > number ? 1 : 0;
    }
    moved = moved || arrived > state.arrived;
    state.arrived = arrived;
  }
  if (moved) advanceAll();
  return moved;
}

std::set<int> SharedMemory::missing() const {
  std::set<int> peers;
  for (const auto& [number, state] : slices_) {
    if (state.phase == Phase::Filled || state.phase == Phase::Gathering) peers.merge(waitingFor(state));
  }
  return peers;
}

bool SharedMemory::needs(int peer, std::uint64_t slicesBelow) const {
  return std::ranges::any_of(
      slices_, [&](const auto& entry) { return entry.first < slicesBelow && waitingFor(entry.second).contains(peer); });
}

void SharedMemory::leave(int peer) {
  left_.insert(peer);
  if (!needs(peer, UINT64_MAX)) return;
  troubles_.failed(hasLeft(rank_, peer));
}

}  // namespace fairring
