#include "device/trial_verdict.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.h"

namespace fairring {
namespace {

constexpr std::array kNames{"all-reduce", "reduce-scatter", "all-gather"};

bool isFaster(const TrialFigures::Times& times) {
  return 100 * times.ncclsAtOnce >= 115 * times.oursAtOnce && times.ncclsAlone >= times.oursAlone;
}

std::string ratio(std::uint64_t nccls, std::uint64_t ours) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f",
                static_cast<double>(nccls) / static_cast<double>(std::max<std::uint64_t>(ours, 1)));
  return text;
}

std::string sizeInWords(std::uint64_t bytes) {
  if (bytes % (1 << 20) == 0) return concat(bytes >> 20, " MiB");
  return bytes % (1 << 10) == 0 ? concat(bytes >> 10, " KiB") : concat(bytes, " B");
}

std::string inWords(const std::vector<TrialFigures>& bySize, std::size_t kind) {
  return joined(bySize, ", ", [kind](const TrialFigures& figures) {
    const TrialFigures::Times& times = figures.times.at(kind);
    return concat(sizeInWords(figures.bytes), " ", times.ncclsAlone, " to ", times.oursAlone, " us alone (",
                  ratio(times.ncclsAlone, times.oursAlone), ") and ", times.ncclsAtOnce, " to ", times.oursAtOnce,
                  " at once (", ratio(times.ncclsAtOnce, times.oursAtOnce), ")");
  });
}

}  // namespace

TrialFigures slowestOf(const std::vector<TrialFigures>& byRank) {
  TrialFigures slowest = byRank.front();
  for (const TrialFigures& one : byRank) {
    for (std::size_t kind = 0; kind < kTrialPatterns.size(); ++kind) {
      TrialFigures::Times& most = slowest.times.at(kind);
      const TrialFigures::Times& times = one.times.at(kind);
      most.ncclsAlone = std::max(most.ncclsAlone, times.ncclsAlone);
      most.oursAlone = std::max(most.oursAlone, times.oursAlone);
      most.ncclsAtOnce = std::max(most.ncclsAtOnce, times.ncclsAtOnce);
      most.oursAtOnce = std::max(most.oursAtOnce, times.oursAtOnce);
    }
  }
  return slowest;
}

TrialVerdict TrialVerdict::allNccls(std::string why) {
  return {.whyNccls = std::move(why), .leastBytes = std::vector(kTrialPatterns.size(), kNever), .figures = {}};
}

TrialVerdict verdictOf(const std::vector<TrialFigures>& bySize) {
  TrialVerdict verdict = TrialVerdict::allNccls("");
  for (std::size_t kind = 0; kind < kTrialPatterns.size(); ++kind) {
    std::uint64_t& least = verdict.leastBytes[kind];
    for (auto figures = bySize.rbegin(); figures != bySize.rend() && isFaster(figures->times.at(kind)); ++figures) {
      least = figures->bytes;
    }
    verdict.figures +=
        concat(kind == 0 ? "" : "; ", kNames[kind],
               least == TrialVerdict::kNever ? " NCCL's" : concat(" Fairring's from ", sizeInWords(least)), ": ",
               inWords(bySize, kind));
  }
  const auto isNccls = [](std::uint64_t least) { return least == TrialVerdict::kNever; };
  if (std::ranges::all_of(verdict.leastBytes, isNccls)) verdict.whyNccls = "the trial did not show Fairring faster";
  return verdict;
}

TrialVerdict commonVerdict(const std::vector<TrialVerdict>& remembered) {
  TrialVerdict common = remembered.front();
  for (const TrialVerdict& one : remembered) {
    if (common.whyNccls.empty()) common.whyNccls = one.whyNccls;
    for (std::size_t kind = 0; kind < kTrialPatterns.size(); ++kind) {
      common.leastBytes[kind] = std::max(common.leastBytes[kind], one.leastBytes[kind]);
    }
  }
  return common;
}

}  // namespace fairring
