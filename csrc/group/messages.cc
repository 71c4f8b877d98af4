#include "group/messages.h"

#include <utility>

namespace fairring {

Messages::Messages(Loop& loop, const Neighbours& neighbours, int rank, Ways ways, Events events)
    : loop_(loop),
      neighbours_(neighbours),
      rank_(rank),
      ways_(ways),
      matching_(loop, rank,
                {[this](int peer, PointToPoint::Reach what) { reach(peer, what); }, std::move(events.channelEnded),
                 std::move(events.failed), std::move(events.progress)}) {}

void Messages::reach(int peer, PointToPoint::Reach what) {
  reachControl(peer);
  if (what == PointToPoint::Reach::Receive || matching_.channelTo(peer) != nullptr) return;
  channelTo(peer);
  ways_.connector.connect(neighbours_.messageLaneTo(peer), ways_.connectTimeout);
}

Channel& Messages::channelTo(int peer) {
  if (matching_.channelTo(peer) == nullptr) {
    const Relinking relinking{[this](int to, std::uint32_t lane) { relink(to, lane); }, ways_.lanePatience};
    matching_.use(peer, std::make_shared<TcpChannel>(loop_, peer, matching_, relinking, spare_));
  }
  return *matching_.channelTo(peer);
}

void Messages::reachControl(int peer) {
  if (ways_.control.peers().contains(peer)) return;
  if (rank_ > peer) {
    ways_.connector.connect(neighbours_.controlTo(peer), ways_.connectTimeout);
  } else {
    ways_.probe.watch(peer, neighbours_.listenAddressOf(peer));
  }
}

// A peer without a control connection has not come to the group: its lane waits for it, and ends with its group.
void Messages::relink(int peer, std::uint32_t lane) {
  if (!ways_.control.peers().contains(peer)) return peerLeaves(peer);
  ways_.connector.restore(peer, Purpose::MessageLane, lane, ways_.lanePatience);
}

// No limit to what stays unread: the peer may come to its group at any time. That it lives, its heartbeats tell.
void Messages::add(AuthenticatedConnection lane) {
  prepareForPayload(lane.stream.socket(), std::chrono::milliseconds(0));
  reachControl(lane.peer);
  channelTo(lane.peer).add(lane.lane, std::move(lane.stream));
}

void Messages::peerLeaves(int peer) {
  if (Channel* const channel = matching_.channelTo(peer)) channel->peerLeaves();
}

std::uint64_t Messages::bytesSeen(int peer) const {
  const Channel* const channel = matching_.channelTo(peer);
  return channel == nullptr ? 0 : channel->bytesSeen();
}

std::vector<int> Messages::unreached() const {
  std::vector<int> peers = matching_.connected();
  std::erase_if(peers, [this](int peer) { return ways_.control.peers().contains(peer) || matching_.hasLeft(peer); });
  return peers;
}

}  // namespace fairring
