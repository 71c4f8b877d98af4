// Which of a group's collective calls are complete on this rank, in the order of their numbers: a small call may end
// before a large one that was made earlier. What survivors of a failure agree on starts from that (group/agreement.h).
// On the loop only.
#pragma once

#include <cstdint>
#include <set>

namespace fairring {

class CompletedCalls {
 public:
  void begin(std::uint64_t number) { begun_ = number; }
  // False: it has ended too late to count, for this rank has told others that it is not complete here.
  bool complete(std::uint64_t number) {
    if (number <= settled_) return false;
    if (number != upTo_ + 1) {
      ahead_.insert(number);
      return true;
    }
    ++upTo_;
    while (ahead_.erase(upTo_ + 1) > 0) ++upTo_;
    return true;
  }
  // Calls 1 to this one are complete here, and none of those begun so far becomes so from now on.
  std::uint64_t settle() {
    settled_ = begun_;
    return upTo_;
  }

 private:
  std::uint64_t begun_ = 0;  // the last one
  std::uint64_t upTo_ = 0;
  std::uint64_t settled_ = 0;      // the last one that was begun then
  std::set<std::uint64_t> ahead_;  // complete, behind one that is not
};

}  // namespace fairring
