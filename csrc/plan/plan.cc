#include "plan/plan.h"

#include <cstddef>
#include <ranges>

#include "base/error.h"

namespace fairring {

namespace {

const char* nameOf(Verb verb) {
  switch (verb) {
    case Verb::ReduceScatter: return "RS";
    case Verb::AllGather: return "AG";
    case Verb::AllReduce: return "AR";
    case Verb::Load: return "LD";
    case Verb::Store: return "ST";
  }
  return "";
}

std::string describe(const Step& step) {
  const char* const name = nameOf(step.verb);
  return step.shards == 0 ? concat(name, step.level) : concat(name, step.level, "/", step.shards);
}

}  // namespace

bool reduces(Verb verb) { return verb == Verb::ReduceScatter || verb == Verb::AllReduce; }

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

Plan reduceScatterPlan(const std::vector<int>& levels) {
  Plan plan;
  for (const int level : levels) plan.push_back({Verb::ReduceScatter, level});
  plan.push_back({Verb::Store, 0});
  return plan;
}

Plan allGatherPlan(const std::vector<int>& levels) {
  Plan plan{{Verb::Load, 0}};
  for (const int level : levels | std::views::reverse) plan.push_back({Verb::AllGather, level});
  return plan;
}

}  // namespace fairring
