// The origin of a rank's group: the groups before it whose members changed, how far the calls of each were complete
// here (group/agreement.h), and the ranks' agreement when the last one met. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "group/agreement.h"

namespace fairring {

class Lineage {
 public:
  struct LastComplete {
    // The group in question: its number on this rank (0: its first one), and the call's number there. None: this
    // rank was not in that group.
    std::optional<std::pair<std::uint64_t, std::uint64_t>> here;
    std::vector<std::optional<std::uint64_t>> ofRank;  // as Agreement has it
  };

  // The lineage of a group that is made of this one's members.
  std::shared_ptr<Lineage> descendant() const;

  void leave(const GroupId& group, std::uint64_t complete);
  std::array<std::byte, GroupHistory::kBytes> told() const;
  void learn(int rank, std::span<const std::byte> toldByAll);  // rank: this one; told: by rank
  // None before the ranks have met, and if none of them was in a group before.
  std::optional<LastComplete> lastComplete() const;
  std::uint64_t groupsLeft() const;
  // How often this rank has tried to make a group of these ranks.
  int countAttempt(const std::vector<int>& ranks);

 private:
  mutable std::mutex mutex_;  // guards all below
  GroupHistory history_;
  std::optional<LastComplete> last_;
  std::map<std::vector<int>, int> attempts_;
};

}  // namespace fairring
