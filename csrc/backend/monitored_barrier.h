// A barrier that names the ranks that do not come: rank 0 waits for a message of every other rank and answers all of
// them once all have come. If some have not come in time, only rank 0 names them; the ranks that have come, and those
// that come later, are told that they don't pass. It is a diagnosis: the group goes on. One object for one barrier on
// one rank; on its caller's thread, which waits.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <vector>

#include "group/group.h"

namespace fairring {

class MonitoredBarrier {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limit {
    std::chrono::milliseconds whole;
    Clock::time_point end;
  };

  // number: how many of the group's monitored barriers came before, on this rank.
  MonitoredBarrier(Group& group, int rank, int size, std::uint32_t number);

  // On rank 0. Throws Failure(Timeout) that names the first missing rank, or all of them.
  void admit(const Limit& limit, bool waitsForAll);
  void pass(const Limit& limit);  // on the others; throws Failure if rank 0 does not let them pass

 private:
  struct Heard;
  std::shared_ptr<Heard> expect(int from);
  static void tell(Group& group, const Label& label, int to, std::byte word);
  bool hasCome(Heard& heard, const Limit& limit) const;
  Error missed(const std::vector<int>& ranks, const Limit& limit) const;

  Group& group_;
  const int rank_;
  const int size_;
  const Label label_;
};

}  // namespace fairring
