#include "group/channel_opening.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fairring {

namespace {

// The patience with a peer is made of so many pauses. A process that stands still, or a loop that is busy, spends only
// one of them however long that lasts, and serves what has come meanwhile before the next one ends.
constexpr int kPauses = 10;

// The call that waits for it needs the rest of its time to connect by TCP and for the sums.
std::chrono::milliseconds patienceOf(std::chrono::milliseconds most, std::chrono::milliseconds callTimeout) {
  return callTimeout.count() > 0 ? std::min(most, callTimeout / 4) : most;
}

}  // namespace

// Peers that one transport reaches at one address of this rank's share what that transport has for all of them.
ChannelOpening::ChannelOpening(Parts parts, Settings settings) : parts_(parts), settings_(std::move(settings)) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> peers;  // by transport and own address
  for (const int peer : parts_.neighbours.rails())
    peers[{transportTo(peer).name, parts_.neighbours.addressesTowards(peer).front()}].push_back(peer);
  for (const auto& [way, those] : peers) make(transportTo(those.front()), way.second, those);
}

ChannelOpening::~ChannelOpening() {
  for (const auto& [peer, state] : states_) parts_.loop.cancel(state.patience);
}

const Transport& ChannelOpening::transportTo(int peer) const {
  return parts_.neighbours.transportTo(peer, settings_.transports);
}

void ChannelOpening::make(const Transport& transport, const std::string& address, const std::vector<int>& peers) {
  ChannelSettings settings = settings_.channels;
  settings.bindAddress = address;
  settings.peers = peers;
  settings.relinking.sendContact = [this](int peer, const std::string& contact) {
    parts_.control.send(peer, ControlType::Contact, contact);
  };
  if (!transport.tcpAfter) return parts_.rails.use(transport.make(parts_.loop, settings, parts_.rails));
  for (const int peer : peers) states_[peer].allowed = patienceOf(*transport.tcpAfter, settings_.callTimeout);
  settings.notOpened = [this](int peer, const Error& error) { onNotOpened(peer, error); };
  try {
    parts_.rails.use(transport.make(parts_.loop, settings, parts_.rails));
  } catch (const Failure& failure) {
    for (const int peer : peers) onNotOpened(peer, failure.error());
  }
}

bool ChannelOpening::isComplete() const {
  const auto isDecided = [](const auto& entry) { return entry.second.way != Way::None; };
  return std::ranges::all_of(states_, isDecided) && parts_.rails.isLinked();
}

void ChannelOpening::introduce(int peer) {
  introduced_.insert(peer);
  const auto found = states_.find(peer);
  if (found != states_.end() && found->second.way != Way::AsChosen) {
    if (!decidesWith(peer)) return parts_.control.send(peer, ControlType::NoChannel, found->second.why);
    wantLanes(peer);
    return parts_.control.send(peer, ControlType::TakeTcp, found->second.why);
  }
  const Channel* const channel = channelTo(peer);
  const std::string contact = channel == nullptr ? "" : channel->contact();
  if (!contact.empty()) parts_.control.send(peer, ControlType::Contact, contact);
}

void ChannelOpening::onContact(int peer, const std::string& contact) {
  const auto found = states_.find(peer);
  Channel* const channel = channelTo(peer);
  if (channel == nullptr || (found != states_.end() && found->second.way != Way::AsChosen)) return;
  const std::string answer = channel->connect(contact);
  if (!answer.empty()) parts_.control.send(peer, ControlType::Contact, answer);
  if (found == states_.end() || !decidesWith(peer) || found->second.patience != 0) return;
  bePatient(peer, kPauses);
}

void ChannelOpening::bePatient(int peer, int pauses) {
  State& state = states_.at(peer);
  state.patience = parts_.loop.at(parts_.loop.now() + state.allowed / kPauses, [this, peer, pauses, &state] {
    const Channel* const late = channelTo(peer);
    if (state.way != Way::AsChosen || late->isOpen() || late->hasEnded()) return;
    if (pauses > 1) return bePatient(peer, pauses - 1);
    takeTcp(peer, concat(whoIsHere(), " heard nothing of ", parts_.neighbours.who(peer), " by RDMA for ",
                         state.allowed.count(), " ms"));
  });
}

// An error without words is a goodbye.
void ChannelOpening::onNotOpened(int peer, const Error& error) {
  State& state = states_.at(peer);
  if (state.way != Way::AsChosen) return;
  const std::string why = concat(whoIsHere(), ": ", error ? error.text() : "the peer has closed the channel");
  if (decidesWith(peer)) return takeTcp(peer, why);
  state.way = Way::None;
  state.why = why;
  if (introduced_.contains(peer)) parts_.control.send(peer, ControlType::NoChannel, why);
}

void ChannelOpening::onNoChannel(int peer, const std::string& why) {
  const auto found = states_.find(peer);
  check(found != states_.end() && decidesWith(peer), ErrorKind::Connection, "rank ", peer,
        " says that it has no channel, and is not to have another");
  if (found->second.way == Way::Tcp) return;
  Channel* const channel = channelTo(peer);
  if (!channel->isOpen()) return takeTcp(peer, why);
  if (channel->hasEnded()) return;
  channel->close();
  parts_.rails.ended(peer, makeError(ErrorKind::Connection, "rank ", peer, " broke RDMA off: ", why));
}

void ChannelOpening::onTakeTcp(int peer, const std::string& why) {
  const auto found = states_.find(peer);
  const Channel* const channel = channelTo(peer);
  const bool isTcp = found != states_.end() && found->second.way == Way::Tcp;
  check(found != states_.end() && !decidesWith(peer) && (isTcp || channel == nullptr || !channel->isOpen()),
        ErrorKind::Connection, "rank ", peer, " says that TCP takes a channel's place, and is not to");
  if (!isTcp) takeTcp(peer, why);
}

// A peer that has yet to be introduced is told then.
void ChannelOpening::takeTcp(int peer, const std::string& why) {
  State& state = states_.at(peer);
  parts_.loop.cancel(std::exchange(state.patience, 0));
  state.way = Way::Tcp;
  state.why = why;
  if (Channel* const chosen = channelTo(peer)) chosen->close();
  ChannelSettings settings = settings_.channels;
  settings.peers = {peer};
  parts_.rails.use(tcpTransport().make(parts_.loop, settings, parts_.rails));
  if (settings_.tookTcp && !std::exchange(hasTold_, true)) {
    settings_.tookTcp(concat("TCP between ", whoIsHere(), " and ", parts_.neighbours.who(peer), ", not RDMA: ", why));
  }
  if (!introduced_.contains(peer)) return;
  wantLanes(peer);
  if (decidesWith(peer)) parts_.control.send(peer, ControlType::TakeTcp, why);
}

void ChannelOpening::wantLanes(int peer) const {
  const std::uint32_t lanes = std::max(transportTo(peer).lanes, 1U);
  parts_.connector.want(parts_.neighbours.lanesTo(peer, lanes), settings_.connectTimeout);
}

}  // namespace fairring
