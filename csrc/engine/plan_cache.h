// A cache of the planner's choices for the calls of one rank: a training makes calls of a handful of sizes.
// For one thread at a time: each of its users has its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/planner.h"

namespace fairring {

class PlanCache {
 public:
  struct CachedPlan {  // for all calls of a size
    std::shared_ptr<const Plan> plan;
    std::uint64_t turns;
    std::uint64_t sliceBytes;  // of each row of a call's bytes (packing.h)
  };

  PlanCache(const Planner& planner, int rank) : planner_(planner), rank_(rank) {}

  CachedPlan of(Pattern pattern, std::uint64_t bytes);  // of the longest row
  // The slice of that number, of so many bytes.
  std::shared_ptr<const Layout> layoutOf(const CachedPlan& chosen, std::uint64_t number, std::uint64_t bytes);
  // One that has a block of so many bytes for each rank.
  std::shared_ptr<const Layout> layoutOfBlocks(const std::vector<std::uint64_t>& bytesByRank);

  const Blocks& blocks() const { return planner_.blocks(); }

 private:
  const Planner& planner_;
  const int rank_;
  std::map<std::pair<Pattern, std::uint64_t>, CachedPlan> chosen_;
  std::map<std::tuple<Plan, std::uint64_t, std::uint64_t>, std::shared_ptr<const Layout>>
      layouts_;  // plan, turn, bytes
  std::map<std::vector<std::uint64_t>, std::shared_ptr<const Layout>> blockLayouts_;
};

}  // namespace fairring
