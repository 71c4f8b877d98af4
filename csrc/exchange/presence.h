// Which rows of a sparse call one contribution has, as bytes of the call's row: all ranks' rows together, each once, in
// the order of their keys. What it has lies packed in memory, one row behind the other, so its length in any range says
// how many bytes travel. Immutable; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/layout.h"

namespace fairring {

class Presence {
 public:
  struct Run {  // neighbouring rows
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t packed;  // where it begins in what is packed
  };

  Presence() = default;
  // keys: of the rows that it has, all of them among those of the call; both ascend.
  Presence(std::span<const std::uint64_t> keys, std::span<const std::uint64_t> call, std::uint64_t rowBytes);

  std::uint64_t before(std::uint64_t at) const;  // bytes that it has before that one of the call
  std::uint64_t within(const Range& call) const { return before(call.end) - before(call.begin); }
  std::span<const Run> runs() const { return runs_; }
  // The first that ends behind that byte of the call.
  std::size_t firstBehind(std::uint64_t at) const;

 private:
  std::vector<Run> runs_;
};

}  // namespace fairring
