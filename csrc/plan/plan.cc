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
    case Verb::Scatter: return "SC";
    case Verb::Gather: return "GA";
    case Verb::Relay: return "RL";
    case Verb::AllToAll: return "AA";
  }
  return "";
}

std::string describe(const Step& step) {
  const char* const name = nameOf(step.verb);
  return step.passedOnTo == 0 ? concat(name, step.level) : concat(name, step.level, "/", step.passedOnTo);
}

}  // namespace

bool reduces(Verb verb) { return verb == Verb::ReduceScatter || verb == Verb::AllReduce; }
bool scatters(Verb verb) { return verb == Verb::ReduceScatter || verb == Verb::Scatter; }
bool gathers(Verb verb) { return verb == Verb::AllGather || verb == Verb::Gather; }

bool hasRoot(Pattern pattern) {
  return pattern == Pattern::Reduce || pattern == Pattern::Broadcast || pattern == Pattern::Scatter ||
         pattern == Pattern::Gather;
}

bool isByRank(Pattern pattern) {
  switch (pattern) {
    case Pattern::AllReduce:
    case Pattern::Reduce:
    case Pattern::Broadcast: return false;
    case Pattern::ReduceScatter:
    case Pattern::AllGather:
    case Pattern::Scatter:
    case Pattern::Gather:
    case Pattern::AllToAll: return true;
  }
  return false;
}

std::string describe(const Plan& plan) {
  return joined(plan, " ", [](const Step& step) { return describe(step); });
}

Plan hierarchicalPlan(const std::vector<int>& levels, bool oneShotTop) {
  Plan plan;  // down, each level shrinks what a rank owns; up is the mirror image
  for (const int level : levels) plan.push_back({Verb::ReduceScatter, level});
  for (const int level : levels | std::views::reverse) plan.push_back({Verb::AllGather, level});
  if (oneShotTop) {
    const auto top = plan.begin() + static_cast<std::ptrdiff_t>(levels.size()) - 1;
    *top = {Verb::AllReduce, levels.back()};
    plan.erase(top + 1);
  }
  return plan;
}

Plan planOf(Pattern pattern, const std::vector<int>& levels) {
  const auto down = [&](Verb verb) {
    Plan plan;
    for (const int level : levels) plan.push_back({verb, level});
    return plan;
  };
  const auto up = [&](Plan plan, Verb verb) {
    for (const int level : levels | std::views::reverse) plan.push_back({verb, level});
    return plan;
  };
  const auto stored = [](Plan plan) {
    plan.push_back({Verb::Store, 0});
    return plan;
  };
  switch (pattern) {
    case Pattern::AllReduce: return hierarchicalPlan(levels, false);
    case Pattern::Reduce: return up(down(Verb::ReduceScatter), Verb::Gather);
    case Pattern::Broadcast: return broadcastPlan(levels, 1);
    case Pattern::ReduceScatter: return stored(down(Verb::ReduceScatter));
    case Pattern::AllGather: return up({{Verb::Load, 0}}, Verb::AllGather);
    case Pattern::Scatter: return stored(down(Verb::Scatter));
    case Pattern::Gather: return up({{Verb::Load, 0}}, Verb::Gather);
    case Pattern::AllToAll: return stored(down(Verb::AllToAll));
  }
  return {};
}

Plan broadcastPlan(const std::vector<int>& levels, int passedOnTo) {
  const int top = levels.back();
  Plan plan;
  for (const int level : levels) {
    if (level == 0 || level < top) plan.push_back({Verb::Scatter, level});
  }
  if (top > 0) plan.push_back({Verb::Relay, top, passedOnTo});
  for (const int level : levels | std::views::reverse) {
    if (level == 0 || level < top) plan.push_back({Verb::AllGather, level});
  }
  return plan;
}

}  // namespace fairring
