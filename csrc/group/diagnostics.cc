#include "group/diagnostics.h"

#include <algorithm>

#include "base/error.h"
#include "base/fields.h"

namespace fairring {

namespace {

using std::chrono::milliseconds;

std::string seconds(milliseconds time) { return concat(static_cast<double>(time.count()) / 1000.0, " s"); }

}  // namespace

Error Diagnostics::late(const TimedCall& call, const Waiting& waiting) const {
  const std::string what = concat(neighbours_.who(rank_), ": Timed out: ", call.text, " in group ", group_,
                                  " did not finish within ", seconds(call.timeout), "; ");
  // A call that is not counted (send, recv) is late for reasons of its own.
  if (waiting.laggard && call.number > waiting.laggard->calls) {
    return makeError(ErrorKind::Timeout, what, laggards(*waiting.laggard, call.number));
  }
  return makeError(ErrorKind::Timeout, what, waiting.open ? "nothing has come from " : "no connection yet with ",
                   waiting.missing.empty() ? std::string("anybody in time") : neighbours_.who(waiting.missing),
                   ", which is slow or stuck, has not made this call, or waits for another rank in turn. If it is ",
                   "only slow, give init_process_group a longer timeout");
}

std::string Diagnostics::laggards(const PeerProgress::Progress& laggard, std::uint64_t number) const {
  const std::string last =
      laggard.calls == 0 ? "it has made no call yet" : concat("its last was call ", laggard.calls, ", ", laggard.last);
  return concat(neighbours_.who(laggard.rank), " has not made this call (number ", number, "): ", last,
                ". All ranks must make the same calls; if that rank is only slow, give init_process_group a longer ",
                "timeout");
}

Error Diagnostics::died(int peer, const Error& error) const {
  return makeError(ErrorKind::PeerDied, neighbours_.who(peer), " died: its connection to ", neighbours_.who(rank_),
                   " ended without a goodbye", error ? concat(" (", error.text(), ")") : "",
                   "; look at that rank's own output for the reason");
}

Error Diagnostics::gone(int peer) const {
  const bool isLocal = neighbours_.isLocal(peer);
  return makeError(ErrorKind::PeerDied, neighbours_.who(peer), " died, or ended, before group ", group_,
                   " was connected: nobody listens at ",
                   isLocal ? "its local socket"
                           : concat(neighbours_.addressesOf(peer).front(), " port ", neighbours_.facts(peer).port),
                   " any more; look at that rank's own output for the reason",
                   isLocal ? concat(". If it runs, it does not share a network namespace with ", neighbours_.who(rank_),
                                    ": give ranks of different containers different values of FAIRRING_MACHINE")
                           : "");
}

Error Diagnostics::stopped(int peer, milliseconds silence) const {
  return makeError(ErrorKind::PeerDied, neighbours_.who(peer), " has not come to group ", group_, ", and its process ",
                   "has not answered ", neighbours_.who(rank_), " for ", seconds(silence),
                   ", though its machine does: ", "it is stopped, or frozen by a debugger. It counts as dead then");
}

Error Diagnostics::messagesLost(int peer) const {
  return makeError(ErrorKind::PeerLeft, neighbours_.who(peer), " died, or left group ", group_,
                   ", with a message due between it and ", neighbours_.who(rank_),
                   "; if it did not mean to, its own output has the reason");
}

Error Diagnostics::left(int peer, bool owed) const {
  if (owed) {
    return makeError(ErrorKind::PeerLeft, neighbours_.who(peer), " began to leave group ", group_, ", and its ",
                     "connection to ", neighbours_.who(rank_), " ended before all that it had sent was there: its ",
                     "process was killed, the network between them is cut, or this rank was too late for it");
  }
  return makeError(ErrorKind::PeerLeft, neighbours_.who(peer), " has left the group (it destroyed it or its program ",
                   "ended), but ", neighbours_.who(rank_), " made a further call that needs it");
}

Error Diagnostics::silent(int peer, milliseconds silence) const {
  return makeError(ErrorKind::PeerDied, neighbours_.who(peer), " has given ", neighbours_.who(rank_),
                   " no sign of life for ", seconds(silence), ": its process is stopped, its machine is down, or ",
                   neighbours_.isLocal(peer) ? "it was frozen by a debugger" : "the network between them is cut",
                   ". FAIRRING_HEARTBEAT_TIMEOUT says how long to wait for such a rank");
}

Error Diagnostics::channelBroke(int peer, const Error& error) const {
  return makeError(ErrorKind::Connection, "the data connection between ", neighbours_.who(rank_), " and ",
                   neighbours_.who(peer), " broke: ", error ? error.text() : "closed by the other side",
                   "; both processes live: look at the network or the RDMA device between them");
}

// The same words on both ranks: the lower one first.
Error Diagnostics::differ(int peer, const std::optional<CallLog::Difference>& difference) const {
  const bool first = rank_ < peer;
  const std::string low = neighbours_.who(std::min(rank_, peer));
  const std::string high = neighbours_.who(std::max(rank_, peer));
  const std::string advice = "all ranks must make the same calls with the same ops, sizes and types in the same order";
  if (!difference) {
    return makeError(ErrorKind::Mismatch, low, " and ", high, " made different calls in group ", group_, ", more than ",
                     CallLog::kKept, " calls ago; ", advice);
  }
  return makeError(ErrorKind::Mismatch, low, " and ", high, " made different calls in group ", group_, ": call ",
                   difference->number, difference->first ? "" : " (or an earlier one that is not kept)", " was ",
                   first ? difference->here : difference->there, " on rank ", std::min(rank_, peer), ", but ",
                   first ? difference->there : difference->here, " on rank ", std::max(rank_, peer), "; ", advice);
}

Error Diagnostics::underWay(const Error& error, const TimedCall& call, bool isTouched) {
  return makeError(error.kind(), error.text(), "; call ", call.number, ", ", call.text, ", was under way: its tensors ",
                   isTouched ? "may hold garbage where its result belongs" : "are as they were before it");
}

Error Diagnostics::settled(const TimedCall& call) const {
  return makeError(ErrorKind::Aborted, neighbours_.who(rank_), " went on to another group while call ", call.number,
                   ", ", call.text, ", of group ", group_, " was under way: it counts as not made, whatever is in its ",
                   "tensors; wait for all works before you shrink or reconfigure a group that has not failed");
}

Error Diagnostics::unreadable(int peer, const std::string& text) const {
  return makeError(ErrorKind::Connection, neighbours_.who(rank_), " can't read what ", neighbours_.who(peer),
                   " has sent in group ", group_, ": '", shownOf(text),
                   "'; use the same version of fairring on all ranks");
}

Error Diagnostics::unfinished(const std::string& call) const {
  return makeError(ErrorKind::Aborted, neighbours_.who(rank_), " destroyed group ", group_, " while ", call,
                   " was not finished; wait for all works before destroy_process_group");
}

Error Diagnostics::own(const Error& error) const {
  return makeError(error.kind(), "group ", group_, ", ", neighbours_.who(rank_), ": ", error.text());
}

}  // namespace fairring
