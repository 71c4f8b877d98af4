// The verdict of a trial by its figures: which calls on a device are faster by Fairring than by NCCL. Pure arithmetic,
// of figures that all ranks have told each other, so all ranks come to the same.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace fairring {

inline constexpr std::array kTrialPatterns{Pattern::AllReduce, Pattern::ReduceScatter, Pattern::AllGather};

struct TrialFigures {
  // Microseconds of one call alone and of several at once, by either candidate: of NCCL's turns the least, of
  // Fairring's the median.
  struct Times {
    std::uint64_t ncclsAlone = 0;
    std::uint64_t oursAlone = 0;
    std::uint64_t ncclsAtOnce = 0;
    std::uint64_t oursAtOnce = 0;

    static void fields(auto& row, auto& times) {
      row(times.ncclsAlone, times.oursAlone, times.ncclsAtOnce, times.oursAtOnce);
    }
  };
  std::uint64_t bytes = 0;   // of each call
  std::vector<Times> times;  // by kTrialPatterns: this rank's, or of each the slowest rank's

  static void fields(auto& row, auto& figures) {
    row(figures.bytes, figures.times);
    row.require(figures.times.size() == kTrialPatterns.size());
  }
};

TrialFigures slowestOf(const std::vector<TrialFigures>& byRank);

struct TrialVerdict {
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  std::string whyNccls;                   // why all calls are NCCL's; empty: not all of them are
  std::vector<std::uint64_t> leastBytes;  // by kTrialPatterns: calls of that size and above are Fairring's
  std::string figures;                    // in words

  static void fields(auto& row, auto& verdict) {
    row("trial 1", verdict.whyNccls, verdict.leastBytes, verdict.figures);
    row.require(verdict.leastBytes.size() == kTrialPatterns.size());
  }
  static TrialVerdict allNccls(std::string why);
};

// bySize: the slowest ranks' figures, in ascending order of sizes. A kind of call is Fairring's from the least size on
// from which it is faster at each size: by 15 % with several calls at once, and no slower with one alone.
TrialVerdict verdictOf(const std::vector<TrialFigures>& bySize);
// Of groups with the same layout, by what their ranks remember: a call is Fairring's where all of them agree.
TrialVerdict commonVerdict(const std::vector<TrialVerdict>& remembered);

}  // namespace fairring
