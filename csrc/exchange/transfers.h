// What one rank exchanges with the others of its rails in one step: which ranges of a rail go to whom. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "exchange/transfer.h"
#include "plan/layout.h"
#include "plan/plan.h"

namespace fairring {

struct RailRanges {
  Range sent;
  Range received;
};
// What this rank sends to an owner of the rail, and what it gets of that one. root: the owner that has all, if any.
RailRanges rangesOf(const Step& step, const Rail& rail, int root, int owner);

// What of a rail this rank holds once the step has reduced.
Range reducedRange(const Step& step, const Rail& rail);

// Bytes that go to, or come from, each peer that any do.
std::map<int, std::uint64_t> bytesTo(const std::vector<Transfer>& transfers);
std::map<int, std::uint64_t> bytesFrom(const std::vector<Transfer>& transfers);

}  // namespace fairring
