// The transports that there are between machines. A new one is an entry here, the files that make its channels, and its
// cost row (plan/cost_rows.cc). Any thread.
#pragma once

#include <vector>

#include "transport/transport.h"

namespace fairring {

// First the one that "auto" falls back to. Of those for RDMA the first is the one that it takes where every rank can.
const std::vector<Transport>& transports();

}  // namespace fairring
