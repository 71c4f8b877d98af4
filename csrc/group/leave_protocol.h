// Leaving in good order: which peers have said that they leave, who has been answered, and whose answers to ours are
// missing. A rank that leaves says how many slices it has completed; a peer answers when all it needs of these has
// arrived, and only then does the one that leaves close its connections. So nothing that was completed is cut off on
// the wire. On the loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "exchange/slice_id.h"

namespace fairring {

struct Completed {  // what a Leave says
  Watermarks slicesBelow;
  std::uint64_t messages = 0;  // that have been sent to its reader

  static void fields(auto& row, auto& completed) {
    for (const SliceQueue queue : kSliceQueues) row(completed.slicesBelow[queue]);
    row(completed.messages);
  }
};

class LeaveProtocol {
 public:
  void heard(int peer, const Completed& completed);  // a peer's Leave
  bool hasGone(int peer) const { return gone_.contains(peer); }
  bool isAnswered(int peer) const { return hasGone(peer) && !unanswered_.contains(peer); }  // it owes nothing
  bool hasUnanswered() const { return !unanswered_.empty(); }
  // The peers that nothing is needed of any more, each once.
  std::vector<int> answerable(const std::function<bool(int peer, const Completed& completed)>& needs);

  // This rank is to leave, as soon as it can say so. `left` is called when all peers have answered its Leave.
  void ask(std::function<void()> left);
  void said(const std::set<int>& peers);  // to these; where there is none, all have answered
  bool isStaying() const { return stage_ == Stage::Staying; }
  bool isAsked() const { return stage_ == Stage::Asked; }
  bool hasSaid() const { return stage_ == Stage::Said; }
  void answered(int peer);  // or its connection is gone
  void giveUp();            // after an error nobody needs anything: this rank has left, if it is to leave

 private:
  enum class Stage : std::uint8_t { Staying, Asked, Said };

  void leaveIfAnswered();

  std::map<int, Completed> unanswered_;  // leaves of others
  std::set<int> gone_;
  std::set<int> awaited_;
  Stage stage_ = Stage::Staying;
  std::function<void()> left_;
};

}  // namespace fairring
