#include "engine/plan_cache.h"

namespace fairring {

namespace {

constexpr std::size_t kMostChosen = 1024;
constexpr std::size_t kMostLayouts = 256;

}  // namespace

const PlanCache::CachedPlan& PlanCache::of(Pattern pattern, std::uint64_t bytes) {
  const std::pair key(pattern, bytes);
  const auto known = chosen_.find(key);
  if (known != chosen_.end()) return known->second;
  if (chosen_.size() >= kMostChosen) chosen_.clear();
  return chosen_[key] = of(planner_.choose(pattern, bytes));
}

PlanCache::CachedPlan PlanCache::of(const PlanChoice& choice) {
  std::shared_ptr<const Plan>& plan = plans_[choice.plan];
  if (!plan) plan = std::make_shared<const Plan>(choice.plan);
  return {.plan = plan,
          .sliceBytes = choice.sliceBytes,
          .stagingBytes = choice.stagingBytes,
          .sliceStagingBytes = choice.sliceStagingBytes};
}

std::shared_ptr<const Layout> PlanCache::layoutOf(const CachedPlan& chosen, std::uint64_t bytes, int root) {
  const LayoutKey key(chosen.plan.get(), root, bytes);
  const auto known = layouts_.find(key);
  if (known != layouts_.end()) return known->second;
  if (layouts_.size() >= kMostLayouts) layouts_.clear();
  Layout layout = planner_.layoutOf(*chosen.plan, rank_, bytes);
  return layouts_[key] = std::make_shared<Layout>(withRoot(std::move(layout), root));
}

// Training has blocks of equal sizes, of which it has a handful.
std::shared_ptr<const Layout> PlanCache::layoutOfBlocks(const std::vector<std::uint64_t>& bytesByRank, int root) {
  const BlockKey key(root, bytesByRank);
  const auto known = blockLayouts_.find(key);
  if (known != blockLayouts_.end()) return known->second;
  if (blockLayouts_.size() >= kMostLayouts) blockLayouts_.clear();
  return blockLayouts_[key] =
             std::make_shared<Layout>(withRoot(planner_.blocks().layout(planner_.leveled(), rank_, bytesByRank), root));
}

std::shared_ptr<const Layout> PlanCache::layoutOfCells() {
  if (!cellLayout_) cellLayout_ = std::make_shared<Layout>(planner_.blocks().counts(planner_.leveled(), rank_));
  return cellLayout_;
}

Layout PlanCache::withRoot(Layout layout, int root) const {
  return root == kNoRoot ? layout : fairring::withRoot(std::move(layout), planner_.leveled(), rank_, root);
}

}  // namespace fairring
