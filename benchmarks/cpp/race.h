// Contenders in turns: a block of calls for each, then again, so that the machine's noise hits all alike. In a block
// calls follow each other with nothing between but the filling and the checking of the tensor. A call's time is that of
// its slowest rank. Values are small integers, whose sums are exact; every element of every result is compared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "contender.h"
#include "meeting.h"

namespace fairring {

struct Course {
  std::size_t bytes;   // of the tensor of one rank
  std::size_t blocks;  // for each contender
  std::size_t calls;   // timed, in a block
  std::size_t warmUp;  // before these
};

struct Score {
  std::string contender;
  std::vector<double> seconds;  // of the slowest rank, by call
  std::uint64_t wrong = 0;      // elements, on all ranks
};

// Called by all ranks at once; all get the same scores.
std::vector<Score> race(Meeting& meeting, const Course& course,
                        const std::vector<std::unique_ptr<Contender>>& contenders);

}  // namespace fairring
