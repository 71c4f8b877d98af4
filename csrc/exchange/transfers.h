// The ranges of a rail that two ranks exchange in one step. Pure.
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
// The ranges that this rank sends to an owner of the rail and receives from it. root: the owner that has all, if any.
RailRanges rangesOf(const Step& step, const Rail& rail, int root, int owner);

// The range of a rail that this rank holds once the step has reduced.
Range reducedRange(const Step& step, const Rail& rail);
std::vector<Range> reducedRanges(const Step& step, const Layout& layout);  // of all rails of the step's level

// The bytes that go to each peer (Transfer::sendBytes) or come from it (receiveBytes); peers without are left out.
std::map<int, std::uint64_t> bytesByPeer(const std::vector<Transfer>& transfers, std::uint64_t Transfer::* bytes);

}  // namespace fairring
