// GNU's OpenMP runtime, with which torch computes, lets a thread that waits for others spin for milliseconds. It leaves
// that off in a process that has more OpenMP threads than cores. It does not see other processes: where each rank of a
// machine has a thread for each core, they keep the cores from one another. One more team of threads in each of them,
// which has nothing to do, makes the runtime take notice. Gloo's threads make such teams when they touch large tensors.
#pragma once

#include <cstddef>

#include "base/loop.h"

namespace fairring {

// ranks: of this machine. The team belongs to the loop's thread, and is made once. No effect if there is a core for
// each thread of all of them.
void leaveOffSpinning(Loop& loop, std::size_t ranks);

}  // namespace fairring
