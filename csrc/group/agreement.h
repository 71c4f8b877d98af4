// The agreement of the ranks of a new group when they meet: on the last call of the group before it that is complete
// everywhere, as ULFM's agree has it. Each rank tells all others which groups it was in, and how many calls of each are
// complete here; all compute the same from that.
//
// A meeting may end well on some of its ranks alone: another death can break it off. Who has learnt something by it
// has acted on that, so it tells the next meeting what it has learnt, and all others learn the same. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "transport/challenge.h"

namespace fairring {

struct Agreement {
  GroupId group{};             // the one before, of which the calls are
  std::uint64_t complete = 0;  // calls 1 to this one are complete on all of its ranks that have come
  // By rank of the new group: how many calls are complete there. None: it comes from elsewhere and has no part in that
  // state.
  std::vector<std::optional<std::uint64_t>> ofRank;
  std::uint64_t meetings = 0;  // that have led to this group, this one included
};

class GroupHistory {
 public:
  static constexpr std::size_t kKept = 16;  // the groups that matter, and attempts to meet that came to nothing
  static constexpr std::size_t kBytes = 8 + kKept * 32;

  // This rank is in that group no more, or asks what it has been there: calls 1 to `complete` are complete here.
  void leave(const GroupId& group, std::uint64_t complete);
  // At the end of a meeting; before the group that has met is left.
  void learn(const Agreement& agreement);
  // How many groups this rank has left; and had, when it came to that one.
  std::uint64_t groupsLeft() const { return left_; }
  std::uint64_t ordinalOf(const GroupId& group) const;

  std::array<std::byte, kBytes> encode() const;
  static GroupHistory decode(std::span<const std::byte, kBytes> bytes);
  // ofRanks: the histories of the new group's ranks, in their order. None where no rank was in a group before.
  static std::optional<Agreement> agree(const std::vector<GroupHistory>& ofRanks);

 private:
  struct Earlier {
    GroupId group{};
    std::uint64_t complete = 0;           // here
    std::optional<std::uint64_t> agreed;  // what a meeting has said is complete everywhere
    std::uint64_t ordinal = 0;            // told to nobody
  };

  using Complete = std::map<GroupId, Earlier>;  // on all ranks

  static Complete completeEverywhere(const std::vector<GroupHistory>& ofRanks);
  const Earlier* lastComplete(const Complete& everywhere) const;
  void forgetWhatMattersLeast();

  std::vector<Earlier> groups_;  // in the order in which this rank came to them
  std::uint64_t meetings_ = 0;
  std::uint64_t left_ = 0;  // groups
};

}  // namespace fairring
