#include "exchange/cells.h"

#include <algorithm>
#include <utility>

#include "plan/grain.h"

namespace fairring {

namespace {

// The ranks of this rank's group at that level, in the order in which groups are members of those above.
std::vector<int> ranksOf(const Topology& topology, int level, int rank) {
  const int machine = topology.machineOf(rank);
  if (level == 0) return topology.ranksOf(machine);
  std::vector<int> ranks;
  for (int site = 0; site < topology.sites(); ++site) {
    if (level == 1 && site != topology.siteOf(machine)) continue;
    for (const int each : topology.machinesOf(site)) {
      const std::vector<int>& there = topology.ranksOf(each);
      ranks.insert(ranks.end(), there.begin(), there.end());
    }
  }
  return ranks;
}

}  // namespace

Cells::Cells(const Topology& topology, const Blocks& blocks, int rank, CellSizes sizes, CellMemory memory)
    : rank_(rank), sizes_(std::move(sizes)), memory_(std::move(memory)), order_(blocks.order()) {
  for (const LevelLayout& layout : blocks.counts(topology, rank).levels) addLevel(topology, layout);
}

void Cells::addLevel(const Topology& topology, const LevelLayout& layout) {
  const auto blocksIn = [this](const Range& range) {
    return std::vector<int>(order_.begin() + static_cast<std::ptrdiff_t>(range.begin),
                            order_.begin() + static_cast<std::ptrdiff_t>(range.end));
  };
  Level level{.level = layout.level, .targets = {}, .sources = ranksOf(topology, layout.level, rank_), .arrivals = {}};
  for (const Rail& rail : layout.rails) {
    const std::vector<int> mine = blocksIn(rail.own());
    level.targets.insert(level.targets.end(), mine.begin(), mine.end());
    for (std::size_t i = 0; i < rail.owners.size(); ++i) {
      const int owner = rail.owners[i];
      std::vector<int> sources = levels_.empty() ? std::vector{owner} : ranksOf(topology, levels_.back().level, owner);
      level.arrivals.push_back({owner, rail.range.begin, mine, std::move(sources), blocksIn(rail.shards[i])});
    }
  }
  levels_.push_back(std::move(level));
}

CellBody::CellBody(std::shared_ptr<const Cells> cells, const Range& stretch)
    : cells_(std::move(cells)), stretch_(stretch), end_(roundUp(bytesFor(cells_->rank_), kGrainBytes)) {
  const auto take = [this](std::uint64_t bytes) { return std::exchange(end_, end_ + roundUp(bytes, kGrainBytes)); };
  for (const Level& level : cells_->levels_) {
    std::uint64_t arriving = 0;
    for (const Arrival& arrival : level.arrivals) {
      if (level.level > 0 && arrival.peer != cells_->rank_) arriving += bytesOf(arrival.targets, arrival.sources);
    }
    received_.push_back(take(arriving));
    // A machine of one rank holds the cells in its image.
    const bool isImage = level.level == 0 && level.sources.size() == 1;
    const bool isTop = &level == &cells_->levels_.back();
    held_.push_back(isImage || isTop ? 0 : take(bytesOf(level.targets, level.sources)));
  }
}

std::size_t CellBody::placeOf(const Step& step) const {
  const auto found = std::ranges::find(cells_->levels_, step.level, &Level::level);
  return static_cast<std::size_t>(found - cells_->levels_.begin());
}

std::uint64_t CellBody::bytesOf(int target, const std::vector<int>& sources) const {
  std::uint64_t bytes = 0;
  for (const int source : sources) bytes += cell(source, target);
  return bytes;
}

std::uint64_t CellBody::bytesOf(const std::vector<int>& targets, const std::vector<int>& sources) const {
  std::uint64_t bytes = 0;
  for (const int target : targets) bytes += bytesOf(target, sources);
  return bytes;
}

std::uint64_t CellBody::bytesFor(int rank) const {
  std::uint64_t bytes = 0;
  for (const int target : cells_->order_) bytes += cell(rank, target);
  return bytes;
}

std::uint64_t CellBody::heldBytes(const Step& step) const {
  const Level& level = cells_->levels_[placeOf(step)];
  return bytesOf(level.targets, level.sources);
}

std::uint64_t CellBody::heldBefore(std::size_t place, const std::vector<int>& targets) const {
  const Level& before = cells_->levels_[place - 1];
  std::uint64_t offset = held_[place - 1];
  for (const int target : before.targets) {
    if (targets.empty() || target == targets.front()) break;
    offset += bytesOf(target, before.sources);
  }
  return offset;
}

// The places of the cells that are held after a level, as they arrive: a target's cells in the order of sources.
class CellBody::Placement {
 public:
  Placement(const CellBody& slice, std::size_t place, std::byte* image)
      : slice_(slice), isTop_(place + 1 == slice.cells_->levels_.size()) {
    const Level& level = slice.cells_->levels_[place];
    std::byte* at = image + slice.held_[place];
    for (const int target : level.targets) {
      next_[target] = at;
      at += slice.bytesOf(target, level.sources);
    }
  }

  // All cells of these sources for the target, which lie side by side there.
  void take(const std::byte* from, int target, const std::vector<int>& sources, std::vector<Copy>& copies) {
    if (!isTop_) {
      const std::uint64_t bytes = slice_.bytesOf(target, sources);
      if (bytes > 0) copies.push_back({next_.at(target), from, bytes});
      next_.at(target) += bytes;
      return;
    }
    for (const int source : sources) {
      std::byte* const to = slice_.cells_->memory_.to[static_cast<std::size_t>(source)];
      const std::uint64_t bytes = slice_.cell(source, target);
      if (to != nullptr && bytes > 0) copies.push_back({to + slice_.stretch_.begin, from, bytes});
      from += bytes;
    }
  }

 private:
  const CellBody& slice_;
  const bool isTop_;
  std::map<int, std::byte*> next_;  // by target
};

std::uint64_t CellBody::imageBytes(const Slice&, int rank) const { return bytesFor(rank); }

std::uint64_t CellBody::bytesCombined(const Slice&, std::size_t, int peer) const {
  return bytesFor(peer) / cells_->levels_.front().sources.size();
}

Job CellBody::fill(const Slice& slice, std::size_t) const {
  std::byte* image = slice.image;
  std::vector<Copy> copies;
  for (const int target : cells_->order_) {
    const std::byte* const from = cells_->memory_.from[static_cast<std::size_t>(target)];
    const std::uint64_t bytes = cell(cells_->rank_, target);
    if (from != nullptr && bytes > 0) copies.push_back({image, from + stretch_.begin, bytes});
    image += bytes;
  }
  return jobOf(std::move(copies));
}

Job CellBody::combine(const Slice& slice, std::size_t, const PeerImages& images) const {
  const Level& level = cells_->levels_.front();
  if (level.sources.size() == 1 && cells_->levels_.size() > 1) return {};  // it holds its image
  std::vector<Copy> copies;
  Placement placement(*this, 0, slice.image);
  for (const Arrival& arrival : level.arrivals) {
    const std::byte* from = arrival.peer == cells_->rank_ ? slice.image : images.at(arrival.peer).data;
    auto wanted = arrival.targets.begin();  // in the order of blocks too
    for (const int target : cells_->order_) {
      if (wanted != arrival.targets.end() && *wanted == target) {
        placement.take(from, target, arrival.sources, copies);
        ++wanted;
      }
      from += cell(arrival.peer, target);
    }
  }
  return jobOf(std::move(copies));
}

std::vector<Transfer> CellBody::transfers(const Slice& slice, std::size_t step) const {
  std::byte* const image = slice.image;
  const std::size_t place = placeOf((*slice.plan)[step]);
  const std::vector<int>& held = cells_->levels_[place - 1].sources;
  std::byte* area = image + received_[place];
  std::vector<Transfer> transfers;
  for (const Arrival& arrival : cells_->levels_[place].arrivals) {
    if (arrival.peer == cells_->rank_) continue;
    transfers.push_back({.peer = arrival.peer,
                         .rail = arrival.rail,
                         .sendFrom = image + heldBefore(place, arrival.sent),
                         .sendBytes = bytesOf(arrival.sent, held),
                         .receiveBytes = bytesOf(arrival.targets, arrival.sources),
                         .receiveAt = area});
    area += transfers.back().receiveBytes;
  }
  return transfers;
}

Job CellBody::afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>&) const {
  std::byte* const image = slice.image;
  const std::size_t place = placeOf((*slice.plan)[step]);
  const std::byte* area = image + received_[place];
  Placement placement(*this, place, image);
  std::vector<Copy> copies;
  for (const Arrival& arrival : cells_->levels_[place].arrivals) {
    const bool isOwn = arrival.peer == cells_->rank_;
    const std::byte* from = isOwn ? image + heldBefore(place, arrival.targets) : area;
    for (const int target : arrival.targets) {
      placement.take(from, target, arrival.sources, copies);
      from += bytesOf(target, arrival.sources);
    }
    if (!isOwn) area = from;
  }
  return jobOf(std::move(copies));
}

}  // namespace fairring
