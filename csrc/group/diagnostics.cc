#include "group/diagnostics.h"

#include <algorithm>

#include "base/error.h"
#include "base/fields.h"

namespace fairring {

namespace {

using std::chrono::milliseconds;

constexpr const char* kLongerTimeout = "give init_process_group a longer timeout";
constexpr std::size_t kMostNamed = 4;  // ranks, in one error

// The ranks that are found worst, all for the same reason.
std::set<int> worstOf(const Inquiry::Findings& findings) {
  std::set<int> ranks;
  for (const Inquiry::Finding& one : findings) {
    if (one.reason == findings.front().reason && ranks.size() < kMostNamed) ranks.insert(one.rank);
  }
  return ranks;
}

std::string seconds(milliseconds time) { return concat(static_cast<double>(time.count()) / 1000.0, " s"); }

}  // namespace

Error Diagnostics::late(const TimedCall& call, const Inquiry::Findings& findings, const std::set<int>& awaited) const {
  const std::string what = concat(neighbours_.who(rank_), ": Timed out: ", call.text, " in group ", group_,
                                  " did not finish within its timeout of ", seconds(call.timeout), "; ");
  if (!findings.empty()) {
    const std::set<int> ranks = worstOf(findings);
    return makeError(ErrorKind::Timeout, what, culprits(call, findings)).about({ranks.begin(), ranks.end()});
  }
  return makeError(ErrorKind::Timeout, what, "nothing has come from ",
                   awaited.empty() ? std::string("anybody in time") : neighbours_.who(awaited),
                   ". All ranks that were asked answer, and each waits for another: the network between them is slow, ",
                   "or they wait for each other's messages. If it is only slow, ", kLongerTimeout)
      .about({awaited.begin(), awaited.end()});
}

std::string Diagnostics::culprits(const TimedCall& call, const Inquiry::Findings& findings) const {
  const Inquiry::Finding& first = findings.front();
  const std::string who = neighbours_.who(worstOf(findings));
  const std::string waiter = neighbours_.who(first.waiting.rank);
  const std::string waitersCall = first.waiting.inCall == 0
                                      ? std::string("a message")
                                      : concat("call ", first.waiting.inCall, ", ", first.waiting.call);
  const std::string last = !first.account || first.account->calls == 0
                               ? std::string("it has made no call yet")
                               : concat("its last was call ", first.account->calls, ", ", first.account->last);
  switch (first.reason) {
    case Inquiry::Reason::Silent:
      return concat(who, " does not answer: ", waiter, " waits for it in ", waitersCall, ", and has asked in vain for ",
                    seconds(Inquiry::kAnswerTime),
                    ". Its process is stopped, its machine is down, or the network to it is cut");
    case Inquiry::Reason::Behind:
      return concat(who, " has not made ",
                    first.waiting.inCall == call.number ? concat("this call (number ", call.number, ")")
                                                        : concat(waitersCall, ", in which ", waiter, " waits for it"),
                    ": ", last, ". All ranks must make the same calls; if that rank is only slow, ", kLongerTimeout);
    case Inquiry::Reason::OnDevice: {
      const Account account = first.account.value_or(Account{});
      return concat(who, " has made call ", account.inCall, ", ", account.call, ", and its device has not come to it: ",
                    "the work that its stream has to do before takes longer, or never ends. If it is only slow, ",
                    kLongerTimeout);
    }
    case Inquiry::Reason::NoWord:
      return concat(who, " has not sent the message, or not posted the receive, that ", waiter,
                    " waits for. It answers and waits for nobody; ", last, ". If it is only slow, ", kLongerTimeout);
    case Inquiry::Reason::Absent:
      return concat("no connection yet with ", who, ", for which ", waiter, " waits in ", waitersCall,
                    ": it is slow or stuck, or has not made this call. If it is only slow, ", kLongerTimeout);
    case Inquiry::Reason::CutOff:
      return concat(who, " does not answer ", waiter, ", which waits for it in ", waitersCall,
                    ", though both answer others: the network between them is cut");
    case Inquiry::Reason::Delivered: break;
  }
  return concat(who, " has ended its part of ", waitersCall, ", and something of it has not come to ", waiter,
                ": the network between them is slow, or cut. If it is only slow, ", kLongerTimeout);
}

Error Diagnostics::died(int peer, const Error& error) const {
  return makeError(ErrorKind::PeerDied, neighbours_.who(peer), " died: its connection to ", neighbours_.who(rank_),
                   " ended without a goodbye", error ? concat(" (", error.text(), ")") : "",
                   "; look at that rank's own output for the reason")
      .about({peer});
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
                           : "")
      .about({peer});
}

Error Diagnostics::stopped(int peer, milliseconds silence) const {
  return makeError(ErrorKind::PeerDied, neighbours_.who(peer), " has not come to group ", group_, ", and its process ",
                   "has not answered ", neighbours_.who(rank_), " for ", seconds(silence),
                   ", though its machine does: ", "it is stopped, or frozen by a debugger. It counts as dead then")
      .about({peer});
}

Error Diagnostics::messagesLost(int peer) const {
  return makeError(ErrorKind::PeerLeft, neighbours_.who(peer), " died, or left group ", group_,
                   ", with a message due between it and ", neighbours_.who(rank_),
                   "; if it did not mean to, its own output has the reason")
      .about({peer});
}

Error Diagnostics::left(int peer, bool owed) const {
  if (owed) {
    return makeError(ErrorKind::PeerLeft, neighbours_.who(peer), " began to leave group ", group_, ", and its ",
                     "connection to ", neighbours_.who(rank_), " ended before all that it had sent was there: its ",
                     "process was killed, the network between them is cut, or this rank was too late for it")
        .about({peer});
  }
  return makeError(ErrorKind::PeerLeft, neighbours_.who(peer), " has left the group (it destroyed it or its program ",
                   "ended), but ", neighbours_.who(rank_), " made a further call that needs it")
      .about({peer});
}

Error Diagnostics::silent(int peer, milliseconds silence) const {
  return makeError(ErrorKind::PeerDied, neighbours_.who(peer), " has given ", neighbours_.who(rank_),
                   " no sign of life for ", seconds(silence), ": its process is stopped, its machine is down, or ",
                   neighbours_.isLocal(peer) ? "it was frozen by a debugger" : "the network between them is cut",
                   ". FAIRRING_HEARTBEAT_TIMEOUT says how long to wait for such a rank")
      .about({peer});
}

Error Diagnostics::channelBroke(int peer, const Error& error) const {
  return makeError(ErrorKind::Connection, "the data connection between ", neighbours_.who(rank_), " and ",
                   neighbours_.who(peer), " broke: ", error ? error.text() : "closed by the other side",
                   "; both processes live: look at the network or the RDMA device between them")
      .about({rank_, peer});
}

// The same words on both ranks: the lower one first.
Error Diagnostics::differ(int peer, const std::optional<CallTable::Difference>& difference) const {
  const bool first = rank_ < peer;
  const std::string low = neighbours_.who(std::min(rank_, peer));
  const std::string high = neighbours_.who(std::max(rank_, peer));
  const std::string advice = "all ranks must make the same calls with the same ops, sizes and types in the same order";
  if (!difference) {
    return makeError(ErrorKind::Mismatch, low, " and ", high, " made different calls in group ", group_, ", more than ",
                     CallTable::kTold, " calls ago; ", advice)
        .about({std::min(rank_, peer), std::max(rank_, peer)});
  }
  return makeError(ErrorKind::Mismatch, low, " and ", high, " made different calls in group ", group_, ": call ",
                   difference->number, difference->first ? "" : " (or an earlier one that is not kept)", " was ",
                   first ? difference->here : difference->there, " on rank ", std::min(rank_, peer), ", but ",
                   first ? difference->there : difference->here, " on rank ", std::max(rank_, peer), "; ", advice)
      .about({std::min(rank_, peer), std::max(rank_, peer)});
}

Error Diagnostics::underWay(const Error& error, const TimedCall& call, bool isTouched) {
  return makeError(error.kind(), error.text(), "; call ", call.number, ", ", call.text, ", was under way: its tensors ",
                   isTouched ? "may hold garbage where its result belongs" : "are as they were before it")
      .about(error.ranks());
}

Error Diagnostics::settled(const TimedCall& call) const {
  return makeError(ErrorKind::Aborted, neighbours_.who(rank_), " went on to another group while call ", call.number,
                   ", ", call.text, ", of group ", group_, " was under way: it counts as not made, whatever is in its ",
                   "tensors; wait for all works before you shrink or reconfigure a group that has not failed")
      .about({rank_});
}

Error Diagnostics::unreadable(int peer, const std::string& text) const {
  return makeError(ErrorKind::Connection, neighbours_.who(rank_), " can't read what ", neighbours_.who(peer),
                   " has sent in group ", group_, ": '", shownOf(text),
                   "'; use the same version of fairring on all ranks")
      .about({peer});
}

Error Diagnostics::unfinished(const std::string& call) const {
  return makeError(ErrorKind::Aborted, neighbours_.who(rank_), " destroyed group ", group_, " while ", call,
                   " was not finished; wait for all works before destroy_process_group")
      .about({rank_});
}

Error Diagnostics::own(const Error& error) const {
  return makeError(error.kind(), "group ", group_, ", ", neighbours_.who(rank_), ": ", error.text()).about({rank_});
}

}  // namespace fairring
