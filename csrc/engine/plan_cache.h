// What the planner chose for the calls of one rank, remembered: a training makes calls of a handful of sizes.
// For one thread at a time: each of its users has its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "plan/planner.h"

namespace fairring {

class PlanCache {
 public:
  struct CachedPlan {  // for all calls of a size
    std::shared_ptr<const Plan> plan;
    std::uint64_t turns;
    std::uint64_t sliceElements;
    std::uint64_t stagingBytes;  // of the ring, that its slices use in turn
  };

  PlanCache(const Planner& planner, int rank) : planner_(planner), rank_(rank) {}

  CachedPlan of(std::uint64_t elements, std::size_t elementBytes);
  // The slice of that number, of so many elements.
  std::shared_ptr<const Layout> layoutOf(const CachedPlan& chosen, std::uint64_t number, std::uint64_t elements,
                                         std::size_t elementBytes);

 private:
  using Size = std::pair<std::uint64_t, std::size_t>;  // elements, and the bytes of each

  const Planner& planner_;
  const int rank_;
  std::map<Size, CachedPlan> chosen_;
  std::map<std::tuple<Plan, std::uint64_t, Size>, std::shared_ptr<const Layout>> layouts_;  // by plan, turn and size
};

}  // namespace fairring
