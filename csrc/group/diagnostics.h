// The errors that end a group, in words: who, what, the numbers, and what to do. Immutable; any thread.
#pragma once

#include <chrono>
#include <set>
#include <string>

#include "group/call_table.h"
#include "group/inquiry.h"
#include "group/neighbours.h"

namespace fairring {

class Diagnostics {
 public:
  Diagnostics(const Neighbours& neighbours, int rank, std::string group)
      : neighbours_(neighbours), rank_(rank), group_(std::move(group)) {}

  // awaited: the ranks that the call waits for.
  Error late(const TimedCall& call, const Inquiry::Findings& findings, const std::set<int>& awaited) const;
  Error died(int peer, const Error& error) const;
  Error gone(int peer) const;                                        // before it has connected
  Error stopped(int peer, std::chrono::milliseconds silence) const;  // before it came to the group
  Error messagesLost(int peer) const;                                // a message was for it, or was to come from it
  // owed: it said that it leaves, and something that it completed for this rank has not arrived.
  Error left(int peer, bool owed) const;
  Error silent(int peer, std::chrono::milliseconds silence) const;
  Error channelBroke(int peer, const Error& error) const;
  Error differ(int peer, const std::optional<CallTable::Difference>& difference) const;
  // The error of a call that was under way when the group failed: it says what became of the call's tensors.
  static Error underWay(const Error& error, const TimedCall& call, bool isTouched);
  Error settled(const TimedCall& call) const;                 // it has ended when it had been said that it had not
  Error unreadable(int peer, const std::string& text) const;  // what a peer has sent over its control connection
  Error unfinished(const std::string& call) const;            // when the group was destroyed
  Error own(const Error& error) const;                        // of this rank's doing, with its name and the group's

 private:
  std::string culprits(const TimedCall& call, const Inquiry::Findings& findings) const;

  const Neighbours& neighbours_;
  const int rank_;
  const std::string group_;
};

}  // namespace fairring
