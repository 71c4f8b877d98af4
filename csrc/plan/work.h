// The work of a rank in one step of a slice, and how long that takes by a cost row. Pure arithmetic; inside plan only.
#pragma once

#include <cstdint>

#include "plan/load.h"
#include "plan/planner.h"

namespace fairring {

// The work of a rank whose turn it is to own a shard, at every level; then the mean over the turns.
StepWork workOf(const Step& step, const Load& load, std::uint64_t sliceBytes);
StepWork meanWorkOf(const Step& step, const Load& load, std::uint64_t sliceBytes);
double secondsOf(const StepWork& work, const CostRow& row);

}  // namespace fairring
