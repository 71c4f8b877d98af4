// Slices that are compressed between sites: they travel there as bf16: what is rounded before it is sent, where that
// stands, and what is made of what comes. At the level of sites such a slice's elements are bf16; below and above it
// they are Float32.
//
//   contribution  what a site has summed, and what was lost of it the last time, rounded; this rank's own, too
//   result        the contributions added in fp32, in the owners' order, and rounded; what that loses is its owner's
//
// So all ranks have the same bits, by every plan. No memory is needed beside what a slice of Float32 has. A shard that
// is sent and not kept is rounded in place, into the first half of its range; the same shard of the result arrives in
// the second half. What comes takes the first half of the area that it would need as Float32; the second half of a
// rail's first area is the spare, where this rank's own shard (of an all-reduce the whole rail) is sent from.
// Pure but for the memory that it points into, and so is each piece of work; on the loop only.
#pragma once

#include <cstddef>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/summation.h"
#include "exchange/transfers.h"

namespace fairring {

bool isCompressed(const Slice& slice, std::size_t step);
// Of a step's transfers as they are for Float32.
void halveTransfers(const Slice& slice, std::size_t step, std::vector<Transfer>& transfers);
// Before the step's parts may be sent.
Pieces roundingOf(const Slice& slice, std::size_t step);
// Once all has come, and left.
Pieces resultOf(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers);

}  // namespace fairring
