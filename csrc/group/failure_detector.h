// The failure detector of one group: once the ranks have met, every sign that a peer may be gone comes here, and the
// verdict falls here alone. A verdict depends on the sign, and on where the peer stands with this rank: whether calls
// need it, whether it has said anything, whether it has said that it leaves. Three things delay one:
//
// - A channel says less than the control connection, which tells a death from a leave. It may also be the last of a
//   peer's connections to come. So a channel's end counts only after some time for the last word.
// - A peer that is gone before it said anything may have left because another rank failed, and could not tell. So the
//   store is asked first, for a limited time, where the first rank that failed says why.
// - A connection that ended before the peer said anything may have been closed by a crowded listener. It is made once
//   more.
//
// On the loop only. Knows no connections: who made it carries its verdicts out.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "base/loop.h"
#include "group/diagnostics.h"
#include "group/neighbours.h"
#include "group/settings.h"

namespace fairring {

class FailureDetector {
 public:
  static constexpr std::chrono::milliseconds kLastWord{2'000};

  struct Sign {
    enum class Kind : std::uint8_t {
      ControlEnded,   // its control connection; by end of file, if there is no error
      ChannelEnded,   // its channel of collective calls, for good
      MessagesEnded,  // its channel of messages, for good
      Unlinked,       // a connection to it can't be made; of kind Configuration: a certificate is refused
      Refused,        // its listener refuses connections
      Stopped,        // its listener takes connections, and its process does nothing with them
      Silent,         // nothing has come over its control connection
      Needed,         // it has left, and a call needs it
    };
    Kind kind;
    int peer;
    Error error = {};
    std::chrono::milliseconds silence = {};
  };

  struct Standing {            // of a peer, with this rank
    bool isNeighbour = false;  // calls of all ranks need it
    bool isAwaited = false;    // a message does
    bool isConnected = false;  // by a control connection
    bool hasLeft = false;      // it has said that it leaves
    bool isAnswered = false;   // and nothing is needed of it any more
    std::uint64_t bytesSeen = 0;
  };

  enum class Verdict : std::uint8_t {
    Alive,
    ConnectAgain,
    ProbeListener,  // it has not come to the group: its listener tells more
    AwaitLastWord,
    HasLeft,       // in good order: only what still needs it fails
    MessagesLost,  // it concerns messages alone
    Dead,
    DeadUnlessTold,  // dead, if the store knows no other reason
  };

  struct Ways {
    std::function<Standing(int peer)> standingOf;
    std::function<void(int peer)> connectAgain;
    std::function<void(int peer)> probeListener;
    std::function<void(Sign::Kind ended, int peer)> hasLeft;
    std::function<void(int peer, const Error&)> loseMessages;
    std::function<void(const Error&)> fail;  // the group
    LookForFailure lookForFailure;           // null: there is nowhere to look
  };

  FailureDetector(Loop& loop, const Neighbours& neighbours, const Diagnostics& diagnostics, int rank, Ways ways,
                  std::chrono::milliseconds lastWord = kLastWord);

  Verdict on(const Sign& sign);
  // The peer has said something, so it has come to the group. True the first time.
  bool heard(int peer) { return heard_.insert(peer).second; }
  bool hasHeard(int peer) const { return heard_.contains(peer); }
  void linked();  // calls of all ranks begin: peers become neighbours
  void close();   // no sign counts any more

 private:
  Verdict verdictOn(const Sign& sign, const Standing& peer, bool hadLastWord);
  bool isStillSilent(int peer, std::uint64_t bytesSeen);
  Verdict judge(const Sign& sign, bool hadLastWord);
  Error errorOf(const Sign& sign, const Standing& peer) const;
  void failUnlessTold(const Error& error);
  void after(std::chrono::milliseconds wait, std::function<void()> action);

  Loop& loop_;
  const Neighbours& neighbours_;
  const Diagnostics& diagnostics_;
  const int rank_;
  const Ways ways_;
  const std::chrono::milliseconds lastWord_;
  std::shared_ptr<FailureDetector*> self_;  // until close(): timers and the store's answer come later
  std::set<int> heard_;
  std::set<int> connectedAgain_;
  std::map<int, std::uint64_t> bytesAtSilence_;  // that had come from a silent peer when it was last said to be
  std::map<int, Error> refused_;                 // by TLS, before calls of all ranks: these can't become neighbours
  bool isLooking_ = false;                       // in the store
};

}  // namespace fairring
