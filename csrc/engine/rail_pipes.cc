#include "engine/rail_pipes.h"

#include <algorithm>
#include <utility>

namespace fairring {

namespace {

// A lane on which the other machine acknowledges nothing for so long is broken and made anew, within the heartbeats'
// patience: half of it leaves time for that.
constexpr std::chrono::milliseconds kLaneSilence{2'000};

}  // namespace

RailPipes::RailPipes(Loop& loop, const GroupSettings& settings, const Neighbours& neighbours, const Secret& secret,
                     Rails& rails, Relinking relinking, std::function<void()> opened)
    : rank_(settings.rank),
      laneSilence_(std::min(kLaneSilence, settings.heartbeatTimeout / 2)),
      open_(settings.transport.pipes == Transport::Pipes::Tcp) {
  if (open_) {
    tcp_ = std::make_unique<TcpPipes>(loop, rails, std::move(relinking));
  } else {
    const ContactPipesSettings contacts{
        .transport = settings.transport.tensorpipe,
        .bindAddress = neighbours.facts(rank_).address(),
        .rank = rank_,
        .peers = {neighbours.rails().begin(), neighbours.rails().end()},
        .secret = secret,
    };
    tensorpipe_ = settings.makeTensorPipe(loop, contacts, rails);
    tensorpipe_->whenOpen([this, opened = std::move(opened)] {
      open_ = true;
      opened();
    });
  }
  rails.use(pipes());
}

Pipes& RailPipes::pipes() const {
  if (tcp_) return *tcp_;
  return *tensorpipe_;
}

void RailPipes::add(Arrival lane) {
  prepareForPayload(lane.wire.socket(), laneSilence_);
  tcp_->add(lane.peer, lane.lane, std::move(lane.wire));
}

void RailPipes::peerLeaves(int peer) {
  if (tcp_) tcp_->peerLeaves(peer);
}

std::optional<std::string> RailPipes::contactFor(int peer) {
  return tensorpipe_ && rank_ < peer ? std::optional(tensorpipe_->contact()) : std::nullopt;
}

void RailPipes::connect(int peer, const std::string& contact) {
  if (tensorpipe_) tensorpipe_->connect(peer, contact);
}

}  // namespace fairring
