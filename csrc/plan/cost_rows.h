// The built-in cost rows: what one rank may expect of each transport, where nobody has measured the machines at hand.
// They only choose between plans that give the same bits, and must be the same on all ranks in every run.
#pragma once

#include <string>
#include <vector>

#include "plan/planner.h"

namespace fairring {

// Rows by level, for CPU tensors: shared memory, then twice the transport of the rails: "tcp", or TensorPipe's "uv",
// "shm", "ibv". Throws Failure(Configuration) for any other name.
std::vector<CostRow> builtInRows(const std::string& transport);

}  // namespace fairring
