// What one rank exchanges with the others of its rails in one step of a slice: which ranges go to whom, and where what
// comes from them belongs. Pure, but for the memory that it points into.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "exchange/exchange.h"
#include "exchange/row_sums.h"
#include "exchange/summation.h"

namespace fairring {

struct Transfer {  // between one peer and this rank, on one rail
  int peer;
  std::uint64_t rail;  // its first element
  const std::byte* sendFrom;
  std::uint64_t sendBytes;
  std::uint64_t receiveBytes;
  std::byte* receiveAt;
  bool placed = false;
  bool here = false;
};

// By rail, then by owner.
std::vector<Transfer> transfersOf(const Slice& slice, std::size_t step);
// The sums of a reducing step, over this rank's own contributions and the received ones, in the owners' order.
Sums sumsOf(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers);

// The same of a slice of a sparse call.
std::vector<RowSum> rowSumsOf(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers);

// Bytes that go to, or come from, each peer that any do.
std::map<int, std::uint64_t> bytesTo(const std::vector<Transfer>& transfers);
std::map<int, std::uint64_t> bytesFrom(const std::vector<Transfer>& transfers);

}  // namespace fairring
