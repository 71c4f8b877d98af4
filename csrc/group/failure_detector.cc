#include "group/failure_detector.h"

#include <cassert>
#include <utility>

namespace fairring {

FailureDetector::FailureDetector(Loop& loop, const Neighbours& neighbours, const Diagnostics& diagnostics, int rank,
                                 Ways ways, std::chrono::milliseconds lastWord)
    : loop_(loop),
      neighbours_(neighbours),
      diagnostics_(diagnostics),
      rank_(rank),
      ways_(std::move(ways)),
      lastWord_(lastWord),
      self_(std::make_shared<FailureDetector*>(this)) {}

FailureDetector::Verdict FailureDetector::on(const Sign& sign) {
  assert(loop_.isCurrent());
  return judge(sign, false);
}

void FailureDetector::close() { self_.reset(); }

FailureDetector::Verdict FailureDetector::verdictOn(const Sign& sign, const Standing& peer, bool hadLastWord) {
  const bool hasHeard = this->hasHeard(sign.peer);
  const Verdict dead = hasHeard ? Verdict::Dead : Verdict::DeadUnlessTold;
  switch (sign.kind) {
    case Sign::Kind::ControlEnded:
      if (peer.hasLeft) return Verdict::HasLeft;
      if (!hasHeard && !peer.isNeighbour) return Verdict::MessagesLost;
      // The higher rank connects.
      if (!hasHeard && rank_ > sign.peer && connectedAgain_.insert(sign.peer).second) return Verdict::ConnectAgain;
      return dead;
    case Sign::Kind::ChannelEnded:
      if (peer.hasLeft) return Verdict::HasLeft;
      return hadLastWord ? dead : Verdict::AwaitLastWord;
    case Sign::Kind::MessagesEnded:
      if (peer.hasLeft) return Verdict::HasLeft;
      if (!hadLastWord) return Verdict::AwaitLastWord;
      return peer.isConnected ? Verdict::Dead : Verdict::MessagesLost;
    case Sign::Kind::Unlinked:
      if (!peer.isNeighbour && (!peer.isAwaited || sign.error.kind() == ErrorKind::Connection))
        return Verdict::MessagesLost;
      return sign.error.kind() == ErrorKind::Configuration ? Verdict::Dead : Verdict::DeadUnlessTold;
    case Sign::Kind::Refused:
    case Sign::Kind::Stopped:
      return peer.isNeighbour || peer.isAwaited ? Verdict::DeadUnlessTold : Verdict::MessagesLost;
    case Sign::Kind::Silent:
      if (peer.isAnswered) return Verdict::Alive;
      if (!hasHeard) return peer.isNeighbour ? Verdict::ProbeListener : Verdict::Alive;
      return isStillSilent(sign.peer, peer.bytesSeen) ? Verdict::Dead : Verdict::Alive;
    case Sign::Kind::Needed: break;
  }
  return Verdict::Dead;
}

// Gradients on their way are a sign of life too: heartbeats can be late behind them on a slow network.
bool FailureDetector::isStillSilent(int peer, std::uint64_t bytesSeen) {
  const auto [before, isNew] = bytesAtSilence_.try_emplace(peer, bytesSeen);
  return !isNew && std::exchange(before->second, bytesSeen) == bytesSeen;
}

FailureDetector::Verdict FailureDetector::judge(const Sign& sign, bool hadLastWord) {
  if (!self_) return Verdict::Alive;
  const Standing peer = ways_.standingOf(sign.peer);
  const Verdict verdict = verdictOn(sign, peer, hadLastWord);
  switch (verdict) {
    case Verdict::Alive: break;
    case Verdict::ConnectAgain: ways_.connectAgain(sign.peer); break;
    case Verdict::ProbeListener: ways_.probeListener(sign.peer); break;
    case Verdict::AwaitLastWord: after(lastWord_, [this, sign] { judge(sign, true); }); break;
    case Verdict::HasLeft: ways_.hasLeft(sign.kind, sign.peer); break;
    case Verdict::MessagesLost: {
      // A process that ended a connection during the challenge knows no such group any more.
      const bool isUnreachable = sign.kind == Sign::Kind::Unlinked && sign.error.kind() != ErrorKind::Connection;
      const Error error = isUnreachable ? errorOf(sign, peer) : diagnostics_.messagesLost(sign.peer);
      if (isUnreachable && sign.error.kind() == ErrorKind::Configuration) refused_.emplace(sign.peer, error);
      ways_.loseMessages(sign.peer, error);
      break;
    }
    case Verdict::Dead: ways_.fail(errorOf(sign, peer)); break;
    case Verdict::DeadUnlessTold: failUnlessTold(errorOf(sign, peer)); break;
  }
  return verdict;
}

Error FailureDetector::errorOf(const Sign& sign, const Standing& peer) const {
  switch (sign.kind) {
    case Sign::Kind::ControlEnded: return diagnostics_.died(sign.peer, sign.error);
    // If a lane has come, and nothing else, nobody knows that the peer's process lives.
    case Sign::Kind::ChannelEnded:
      return hasHeard(sign.peer) ? diagnostics_.channelBroke(sign.peer, sign.error)
                                 : diagnostics_.died(sign.peer, sign.error);
    case Sign::Kind::MessagesEnded: return diagnostics_.channelBroke(sign.peer, sign.error);
    // It listened once: who it is was read from the store, and its listener probed.
    case Sign::Kind::Unlinked:
      return sign.error.kind() == ErrorKind::PeerDied ? diagnostics_.gone(sign.peer)
                                                      : neighbours_.unreachable(sign.peer, sign.error);
    case Sign::Kind::Refused: return diagnostics_.gone(sign.peer);
    case Sign::Kind::Stopped: return diagnostics_.stopped(sign.peer, sign.silence);
    case Sign::Kind::Silent: return diagnostics_.silent(sign.peer, sign.silence);
    case Sign::Kind::Needed: break;
  }
  return diagnostics_.left(sign.peer, !peer.isAnswered);
}

void FailureDetector::linked() {
  for (const auto& [peer, why] : refused_) {
    if (ways_.standingOf(peer).isNeighbour) return ways_.fail(why);
  }
}

void FailureDetector::failUnlessTold(const Error& error) {
  if (isLooking_) return;
  if (!ways_.lookForFailure) return ways_.fail(error);
  isLooking_ = true;
  after(lastWord_, [this, error] { ways_.fail(error); });
  ways_.lookForFailure([&loop = loop_, self = std::weak_ptr(self_), error](const Error& reason) {
    loop.post([self, found = reason ? reason : error] {
      if (const auto detector = self.lock()) (*detector)->ways_.fail(found);
    });
  });
}

void FailureDetector::after(std::chrono::milliseconds wait, std::function<void()> action) {
  loop_.at(loop_.now() + wait, [self = std::weak_ptr(self_), action = std::move(action)] {
    if (const auto isOpen = self.lock()) action();
  });
}

}  // namespace fairring
