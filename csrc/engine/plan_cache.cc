#include "engine/plan_cache.h"

namespace fairring {

namespace {

constexpr std::size_t kMostChosen = 1024;
constexpr std::size_t kMostLayouts = 256;

}  // namespace

PlanCache::CachedPlan PlanCache::of(Pattern pattern, std::uint64_t bytes) {
  const std::pair key(pattern, bytes);
  const auto known = chosen_.find(key);
  if (known != chosen_.end()) return known->second;
  if (chosen_.size() >= kMostChosen) chosen_.clear();
  PlanChoice choice = planner_.choose(pattern, bytes);
  const std::uint64_t turns = planner_.turns(choice.plan);
  auto plan = std::make_shared<const Plan>(std::move(choice.plan));
  return chosen_[key] = {.plan = std::move(plan), .turns = turns, .sliceBytes = choice.sliceElements};
}

std::shared_ptr<const Layout> PlanCache::layoutOf(const CachedPlan& chosen, std::uint64_t number, std::uint64_t bytes) {
  const std::uint64_t turn = number % chosen.turns;
  const auto key = std::tuple(*chosen.plan, turn, bytes);
  const auto known = layouts_.find(key);
  if (known != layouts_.end()) return known->second;
  if (layouts_.size() >= kMostLayouts) layouts_.clear();
  return layouts_[key] = std::make_shared<Layout>(planner_.layoutOf(*chosen.plan, rank_, turn, bytes, 1));
}

std::shared_ptr<const Layout> PlanCache::layoutOfBlocks(const std::vector<std::uint64_t>& bytesByRank) {
  const auto known = blockLayouts_.find(bytesByRank);
  if (known != blockLayouts_.end()) return known->second;
  if (blockLayouts_.size() >= kMostLayouts) blockLayouts_.clear();
  return blockLayouts_[bytesByRank] =
             std::make_shared<Layout>(planner_.blocks().layout(planner_.topology(), rank_, bytesByRank));
}

}  // namespace fairring
