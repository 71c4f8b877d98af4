// Messages between two ranks in virtual time: rank 0 sends to the last rank, and that one back, as send and recv do in
// a job (exchange/point_to_point.h). Only time passes.
#pragma once

#include <cstdint>
#include <functional>

#include "simulation/world.h"

namespace fairring::simulation {

// When the last round has ended. Rank 0 waits for the message back before it begins the next one.
// Throws Failure(Usage) where both ranks stand on one machine, whose loopback is not simulated, and whatever
// everySoOften does (World::finish).
Time pingPong(World& world, std::uint64_t bytes, int rounds, const std::function<void()>& everySoOften = nullptr);

}  // namespace fairring::simulation
