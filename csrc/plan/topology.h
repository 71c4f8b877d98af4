// The topology: takes facts about every rank and makes levels of groups. Pure arithmetic; immutable.
// Level 0 groups the ranks of a machine, level 1 the machines of a site, level 2 the sites of the world.
// Ranks of a group stand in ascending order; machines and sites in the order of their lowest rank. That order is the
// order of summation, so it is the same on all ranks.
// Many machines of a site stand in groups: what they sum to is summed group by group, whichever plan is taken, so that
// a plan may have them in place of sites (inGroups()) without another result. Of even more machines all plans of all
// calls have them: then a rank meets the ranks of its group, and one or two of each other, instead of one of every
// machine, and needs no other connections.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace fairring {

struct Place {
  std::string machine;  // equal strings: the same machine
  std::string site;     // equal strings: the same site; a machine stands in one site
};

// From so many machines of one site on; tests have fewer.
struct GroupingFrom {
  static constexpr int kNever = std::numeric_limits<int>::max();
  int groups = 8;  // of fewer, groups would save hardly a message
  int only = 65;   // all plans are in groups; of fewer, a rank can be connected to one of every machine
};

class Topology {
 public:
  static constexpr int kLevels = 3;  // machine, rail, site or group of machines
  static constexpr int kSiteLevel = 2;

  // places[r] is rank r's. Throws Failure(Configuration) if empty or if a machine stands in two sites.
  explicit Topology(const std::vector<Place>& places, const GroupingFrom& from = {});

  int world() const { return static_cast<int>(machineOf_.size()); }
  int machines() const { return static_cast<int>(ranksOf_.size()); }
  int sites() const { return static_cast<int>(machinesOf_.size()); }

  int machineOf(int rank) const { return machineOf_[rank]; }
  const std::vector<int>& machineOfEach() const { return machineOf_; }  // by rank
  int localIndexOf(int rank) const { return localIndexOf_[rank]; }
  bool inOneSite(int rank, int other) const { return siteOf_[machineOf_[rank]] == siteOf_[machineOf_[other]]; }
  int siteOf(int machine) const { return siteOf_[machine]; }
  const std::vector<int>& ranksOf(int machine) const { return ranksOf_[machine]; }
  const std::vector<int>& machinesOf(int site) const { return machinesOf_[site]; }

  // How many groups of machines there are, side by side and nearly equal (boundsOf()). 0: the machines are not grouped.
  int groups() const { return groups_; }
  // The same ranks and machines, with groups in place of the one site.
  Topology inGroups() const;
  bool onlyInGroups() const { return onlyInGroups_; }  // as are the plans of all calls

  // Levels at which some group has more than one member. Level 0 is always in (it moves bytes between the tensor and
  // staging even where a machine has one rank).
  std::vector<int> levels() const;
  std::string describe() const;  // "2 machines of (4, 3) ranks", for messages

 private:
  static int groupsOf(int machines, const GroupingFrom& from);

  std::vector<int> machineOf_;
  std::vector<int> localIndexOf_;
  std::vector<int> siteOf_;
  std::vector<std::vector<int>> ranksOf_;
  std::vector<std::vector<int>> machinesOf_;
  int groups_ = 0;
  bool onlyInGroups_ = false;
};

// The members of one of so many groups of so many members: from the first to before the last.
struct GroupBounds {
  int first;
  int last;
};
GroupBounds boundsOf(int group, int groups, int members);

}  // namespace fairring
