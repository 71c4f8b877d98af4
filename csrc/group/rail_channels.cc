#include "group/rail_channels.h"

#include <algorithm>
#include <utility>

namespace fairring {

namespace {

// A lane on which the other machine acknowledges nothing for so long is broken and made anew, within the heartbeats'
// patience: half of it leaves time for that.
constexpr std::chrono::milliseconds kLaneSilence{2'000};

}  // namespace

RailChannels::RailChannels(Loop& loop, const GroupSettings& settings, const Neighbours& neighbours,
                           const Secret& secret, Rails& rails, Relinking relinking, std::function<void()> opened)
    : rank_(settings.rank),
      laneSilence_(std::min(kLaneSilence, settings.tuning.heartbeatTimeout / 2)),
      opened_(std::move(opened)),
      tcp_(std::make_unique<TcpChannels>(loop, rails, std::move(relinking))) {
  makeContacts(loop, settings, neighbours, secret, rails);
  rails.use(*this);
}

// Sites of their own addresses, and so of their own listeners, have channels of their own too.
void RailChannels::makeContacts(Loop& loop, const GroupSettings& settings, const Neighbours& neighbours,
                                const Secret& secret, MessageReceiver& receiver) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> peers;  // by transport and own address
  for (const int peer : neighbours.rails()) {
    const Transport& transport = neighbours.transportTo(peer, settings.transports);
    if (transport.kind == Transport::Kind::Tcp) continue;
    peers[{transport.tensorpipe, neighbours.addressesTowards(peer).front()}].push_back(peer);
  }
  unopened_ = peers.size();
  for (const auto& [way, those] : peers) {
    const auto& [transport, address] = way;
    const ContactChannelsSettings contacts{
        .transport = transport, .bindAddress = address, .rank = rank_, .peers = those, .secret = secret};
    contacts_.push_back(settings.makeTensorPipe(loop, contacts, receiver));
    for (const int peer : those) contactOf_[peer] = contacts_.back().get();
    contacts_.back()->whenOpen([this] {
      --unopened_;
      opened_();
    });
  }
}

Channels& RailChannels::channelsTo(int peer) const {
  const auto found = contactOf_.find(peer);
  if (found != contactOf_.end()) return *found->second;
  return *tcp_;
}

void RailChannels::send(int peer, std::span<const Message> messages, Released released) {
  channelsTo(peer).send(peer, messages, std::move(released));
}

void RailChannels::close() {
  tcp_->close();
  for (const auto& channels : contacts_) channels->close();
}

void RailChannels::add(AuthenticatedConnection lane) {
  prepareForPayload(lane.stream.socket(), laneSilence_);
  shareEvenly(lane.stream.socket());
  tcp_->add(lane.peer, lane.lane, std::move(lane.stream));
}

void RailChannels::peerLeaves(int peer) {
  if (!contactOf_.contains(peer)) tcp_->peerLeaves(peer);
}

std::optional<std::string> RailChannels::contactFor(int peer) {
  const auto found = contactOf_.find(peer);
  return found != contactOf_.end() && rank_ < peer ? std::optional(found->second->contact()) : std::nullopt;
}

void RailChannels::connect(int peer, const std::string& contact) {
  const auto found = contactOf_.find(peer);
  if (found != contactOf_.end()) found->second->connect(peer, contact);
}

}  // namespace fairring
