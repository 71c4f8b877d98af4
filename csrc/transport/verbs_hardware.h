// A port of a device of InfiniBand or RoCE, by libibverbs (verbs_library.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/rdma_ports.h"
#include "transport/verbs_device.h"

namespace fairring {

// Why this process can't use verbs as it has offered (rdma_ports.h), and the remedy; empty if it can. Opens the port
// that it would take.
std::string verbsObstacle(const RdmaOffer& offer);

// With room for that many completions. Throws Failure(Configuration), with the reason and the remedy.
std::unique_ptr<VerbsDevice> openVerbsPort(const RdmaPort& port, std::uint32_t completions);

}  // namespace fairring
