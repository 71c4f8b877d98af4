// A cache of the planner's choices and layouts for the calls of one rank: a training makes calls of a handful of sizes.
// One thread at a time may use it: each of its users has its own.
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
    std::shared_ptr<const Plan> plan = nullptr;
    std::uint64_t sliceBytes = 0;         // of each row of a call's bytes (packing.h)
    std::uint64_t stagingBytes = 0;       // of the ring, that its slices use in turn
    std::uint64_t sliceStagingBytes = 0;  // of one slice, on the rank that needs most
  };

  PlanCache(const Planner& planner, int rank) : planner_(planner), rank_(rank) {}

  // bytes: of the call's longest row. The reference holds until the next call.
  const CachedPlan& of(Pattern pattern, std::uint64_t bytes);
  // A choice that depends on more than the bytes. It is not remembered, but equal plans are one object.
  CachedPlan of(const PlanChoice& choice);
  // The layout of a slice of so many bytes. root: a rank, if the pattern has one.
  std::shared_ptr<const Layout> layoutOf(const CachedPlan& chosen, std::uint64_t bytes, int root = kNoRoot);
  // The layout of a slice that has a block of so many bytes for each rank.
  std::shared_ptr<const Layout> layoutOfBlocks(const std::vector<std::uint64_t>& bytesByRank, int root = kNoRoot);
  std::shared_ptr<const Layout> layoutOfCells();  // of every slice of an all-to-all

 private:
  static constexpr int kNoRoot = -1;
  using LayoutKey = std::tuple<const Plan*, int, std::uint64_t>;
  using BlockKey = std::pair<int, std::vector<std::uint64_t>>;

  Layout withRoot(Layout layout, int root) const;

  const Planner& planner_;
  const int rank_;
  std::map<std::pair<Pattern, std::uint64_t>, CachedPlan> chosen_;
  std::map<Plan, std::shared_ptr<const Plan>> plans_;           // each once
  std::map<LayoutKey, std::shared_ptr<const Layout>> layouts_;  // root, bytes
  std::map<BlockKey, std::shared_ptr<const Layout>> blockLayouts_;
  std::shared_ptr<const Layout> cellLayout_;
};

}  // namespace fairring
