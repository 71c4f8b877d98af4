#include "plan/plan.h"

#include <cstddef>
#include <ranges>

#include "base/error.h"

namespace fairring {

namespace {

std::string describe(const Step& step) {
  const char* verb = step.verb == Verb::ReduceScatter ? "RS" : step.verb == Verb::AllGather ? "AG" : "AR";
  return step.shards == 0 ? concat(verb, step.level) : concat(verb, step.level, "/", step.shards);
}

}  // namespace

std::string describe(const Plan& plan) {
  std::string text;
  for (const Step& step : plan) {
    if (!text.empty()) text += ' ';
    text += describe(step);
  }
  return text;
}

Plan hierarchicalPlan(const std::vector<int>& levels, bool oneShotTop, const FewShards& few) {
  const auto shardsAt = [&](int level) { return level > 0 && level == few.level ? few.shards : 0; };
  Plan plan;  // down, each level shrinks what a rank owns; up is the mirror image
  for (const int level : levels) plan.push_back({Verb::ReduceScatter, level, shardsAt(level)});
  for (const int level : levels | std::views::reverse) plan.push_back({Verb::AllGather, level, shardsAt(level)});
  if (oneShotTop && levels.back() > 0) {
    const auto top = plan.begin() + static_cast<std::ptrdiff_t>(levels.size()) - 1;
    *top = {Verb::AllReduce, levels.back()};
    plan.erase(top + 1);
  }
  return plan;
}

}  // namespace fairring
