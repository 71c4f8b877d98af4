#include "engine/plan_cache.h"

namespace fairring {

namespace {

constexpr std::size_t kMostChosen = 1024;
constexpr std::size_t kMostLayouts = 256;

}  // namespace

PlanCache::CachedPlan PlanCache::of(std::uint64_t elements, std::size_t elementBytes) {
  const Size size(elements, elementBytes);
  const auto known = chosen_.find(size);
  if (known != chosen_.end()) return known->second;
  if (chosen_.size() >= kMostChosen) chosen_.clear();
  PlanChoice choice = planner_.choose(elements, elementBytes);
  const std::uint64_t turns = planner_.turns(choice.plan);
  auto plan = std::make_shared<const Plan>(std::move(choice.plan));
  return chosen_[size] = {.plan = std::move(plan),
                          .turns = turns,
                          .sliceElements = choice.sliceElements,
                          .stagingBytes = choice.stagingBytes};
}

std::shared_ptr<const Layout> PlanCache::layoutOf(const CachedPlan& chosen, std::uint64_t number,
                                                  std::uint64_t elements, std::size_t elementBytes) {
  const std::uint64_t turn = number % chosen.turns;
  const auto key = std::tuple(*chosen.plan, turn, Size(elements, elementBytes));
  const auto known = layouts_.find(key);
  if (known != layouts_.end()) return known->second;
  if (layouts_.size() >= kMostLayouts) layouts_.clear();
  return layouts_[key] = std::make_shared<Layout>(planner_.layoutOf(*chosen.plan, rank_, turn, elements, elementBytes));
}

}  // namespace fairring
