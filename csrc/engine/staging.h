// Staging memory of one group: a ring of bytes, given out and reclaimed in slice order.
// Out of order, a later slice could hold what an earlier one waits for: a deadlock. When nothing is taken it begins
// anew at the front, so that small calls use the same few pages again and again instead of touching all of the memory
// once: a page costs most when it is first touched. A slice may ask for less of the ring than all of it.
// Bookkeeping only: the bytes are the machine level's segment. Owner of the loop's progress only.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "plan/grain.h"
#include "plan/planner.h"

namespace fairring {

class StagingRing {
 public:
  static constexpr std::uint64_t kAlignment = Planner::kStagingGrainBytes;  // of every piece given out

  explicit StagingRing(std::uint64_t bytes) : bytes_(bytes) {}

  static std::uint64_t rounded(std::uint64_t bytes) { return roundUp(bytes, kAlignment); }

  // Offset of that much contiguous memory among the first `of` bytes, or nothing while too little is free there.
  // 0 bytes take nothing of the ring.
  std::optional<std::uint64_t> take(std::uint64_t slice, std::uint64_t bytes, std::uint64_t of);
  // Any order; memory becomes free when everything taken before it is released too.
  void release(std::uint64_t slice);
  bool empty() const { return taken_.empty(); }

 private:
  struct Taken {
    std::uint64_t slice;
    std::uint64_t begin;
    std::uint64_t end;
    bool released;
  };

  bool isFree(std::uint64_t begin, std::uint64_t end) const;

  const std::uint64_t bytes_;
  std::uint64_t next_ = 0;
  std::deque<Taken> taken_;
};

}  // namespace fairring
