#include "plan/layout.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "plan/grain.h"
#include "plan/partition.h"

namespace fairring {

Range piece(Range range, int parts, int index) {
  const auto cut = [&](std::uint64_t i) { return range.begin + i * range.size() / static_cast<std::uint64_t>(parts); };
  return {cut(index), cut(index + 1)};
}

const LevelLayout& Layout::at(int level) const {
  for (const LevelLayout& entry : levels) {
    if (entry.level == level) return entry;
  }
  throw std::out_of_range(concat("this layout has no level ", level));
}

Layout layoutSlice(const Topology& topology, int rank, std::uint64_t bytes) {
  return layoutOf(Partitions(topology, Partitions::onGrains(bytes)), topology, rank, bytes);
}

Layout layoutOf(const Partitions& rails, const Topology& topology, int rank, std::uint64_t bytes) {
  Layout layout{bytes, {}};
  for (const int level : topology.levels()) {
    LevelLayout entry{.level = level, .rails = {}};
    if (level == 1) entry.groups = topology.groups();
    for (Rail& rail : rails.of(level, groupOf(topology, level, rank))) {
      const auto self = std::ranges::find(rail.owners, rank);
      if (self == rail.owners.end()) continue;
      rail.self = static_cast<int>(self - rail.owners.begin());
      entry.rails.push_back(std::move(rail));
    }
    layout.levels.push_back(std::move(entry));
  }
  return layout;
}

Layout inBytes(const Layout& units, std::uint64_t unitBytes, std::uint64_t bytes) {
  Layout layout = units;
  layout.bytes = bytes;
  const auto scale = [&](Range& range) {
    range = {std::min(range.begin * unitBytes, bytes), std::min(range.end * unitBytes, bytes)};
  };
  for (LevelLayout& level : layout.levels) {
    for (Rail& rail : level.rails) {
      scale(rail.range);
      std::ranges::for_each(rail.shards, scale);
    }
  }
  return layout;
}

Layout withRoot(Layout layout, const Topology& topology, int rank, int root) {
  for (LevelLayout& entry : layout.levels) {
    const int group = groupOf(topology, entry.level, rank);
    if (groupOf(topology, entry.level, root) != group) continue;
    const std::vector<int> members = membersOf(topology, entry.level, group);
    const int below = entry.level == 0 ? root : groupOf(topology, entry.level - 1, root);
    entry.root = static_cast<int>(std::ranges::find(members, below) - members.begin());
  }
  return layout;
}

}  // namespace fairring
