// The built-in cost rows: what one rank may expect of each transport, where nobody has measured the machines at hand.
// They only choose between plans that give the same bits, and must be the same on all ranks in every run.
#pragma once

#include <string>
#include <vector>

#include "plan/planner.h"

namespace fairring {

// Rows by level, for CPU tensors: shared memory, the transport of the rails, that between sites. Transports are "tcp",
// "verbs", or TensorPipe's "uv", "shm", "ibv"; throws Failure(Configuration) for any other name.
std::vector<CostRow> builtInRows(const std::string& rail, const std::string& site = "tcp");

// The same networks for tensors of a CUDA device: level 0 is NCCL's, and what crosses a network passes pinned memory.
std::vector<CostRow> rowsOnDevice(std::vector<CostRow> ofCpu);

}  // namespace fairring
