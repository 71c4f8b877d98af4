// The work of a rank in one step of a slice, and how long that takes by a cost row. Pure arithmetic; inside plan only.
#pragma once

#include <cstdint>

#include "plan/load.h"
#include "plan/planner.h"

namespace fairring {

StepWork workOf(const Step& step, const Load& load, std::uint64_t sliceBytes);
double secondsOf(const StepWork& work, const CostRow& row);

}  // namespace fairring
