#include "group/messages.h"

#include <utility>

namespace fairring {

Messages::Messages(Loop& loop, const Neighbours& neighbours, int rank, Ways ways, Events events)
    : neighbours_(neighbours),
      rank_(rank),
      ways_(ways),
      matching_(loop, rank, channels_,
                {[this](int peer, PointToPoint::Reach what) { reach(peer, what); }, std::move(events.channelEnded),
                 std::move(events.failed), std::move(events.progress)}),
      channels_(loop, matching_, {[this](int peer, std::uint32_t lane) { relink(peer, lane); }, ways.lanePatience}) {}

void Messages::reach(int peer, PointToPoint::Reach what) {
  reachControl(peer);
  if (what == PointToPoint::Reach::Receive || channels_.knows(peer)) return;
  channels_.expect(peer);
  ways_.connector.connect(neighbours_.messageLaneTo(peer), ways_.connectTimeout);
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
  if (!ways_.control.peers().contains(peer)) return channels_.peerLeaves(peer);
  ways_.connector.restore(peer, Purpose::MessageLane, lane, ways_.lanePatience);
}

// No limit to what stays unread: the peer may come to its group at any time. That it lives, its heartbeats tell.
void Messages::add(AuthenticatedConnection lane) {
  prepareForPayload(lane.stream.socket(), std::chrono::milliseconds(0));
  reachControl(lane.peer);
  channels_.add(lane.peer, lane.lane, std::move(lane.stream));
}

void Messages::lose(int peer, const Error& error) {
  channels_.drop(peer);
  matching_.lose(peer, error);
}

void Messages::fail(const Error& error) {
  channels_.close();
  matching_.fail(error);
}

std::vector<int> Messages::unreached() const {
  std::vector<int> peers = channels_.peers();
  std::erase_if(peers, [this](int peer) { return ways_.control.peers().contains(peer) || matching_.hasLeft(peer); });
  return peers;
}

}  // namespace fairring
