// Whether the process that serves the job's store has gone. A store's own clone() finds out too, but tries again for as
// long as the store's timeout. Any thread; waits for at most a second, and for the resolver.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace fairring {

// False where it can't be told: stores that are no servers' (a file).
bool isStoreGone(c10d::Store& store);

}  // namespace fairring
