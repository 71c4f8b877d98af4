#include "engine_ranks.h"

#include <bit>

#include "exchange/slice_header.h"

namespace fairring::testing {

using simulation::ofSeconds;

EngineRanks::EngineRanks(const Script& script, const simulation::WorldSettings& settings)
    : world_(settings), creditBytes_(script.creditKiB << 10) {
  for (int rank = 0; rank < world_.size(); ++rank) peers_.push_back(world_.planner().peersOf(rank));
  if (script.lanes > 0) wires_.emplace(world_, static_cast<std::uint32_t>(script.lanes), script.seed);
  world_.post().onSend = [this](int from, int to, std::span<const Message> messages) { watch(from, to, messages); };
}

void EngineRanks::strike(const Fault& fault) {
  const Time until = world_.now() + ofSeconds(static_cast<double>(fault.amount) * 1e-6);
  switch (fault.kind) {
    case Fault::Kind::Kill: return world_.kill(fault.who);
    case Fault::Kind::Pause: return world_.pause(fault.who, until);
    case Fault::Kind::Slow: return world_.slow(fault.who, static_cast<double>(fault.amount));
    case Fault::Kind::Cut: return world_.cut(fault.who, fault.other, until);
    case Fault::Kind::Break: return wires_ ? wires_->breakLanes(fault.who) : void();
    case Fault::Kind::Sever: return world_.cut(fault.who, fault.other, simulation::kNever);
    case Fault::Kind::Lose:
    case Fault::Kind::Late:
    case Fault::Kind::Refuse:
    case Fault::Kind::Stranger:  // there is no store here, no group that forms, and no listener
    case Fault::Kind::Freeze:
    case Fault::Kind::Leap:
    case Fault::Kind::Starve:
    case Fault::Kind::Idle: return;  // nor any timer of the engine's own, and its first call is its user's
  }
}

std::string EngineRanks::wrongIn(int, const Error& error) const {
  return error.kind() == ErrorKind::PeerDied ? "" : "an error of this kind has no cause here";
}

std::string EngineRanks::unrestOf(int rank) const {
  return world_.rank(rank).isAtRest() ? "" : "is not at rest when all calls have ended";
}

std::string EngineRanks::whomWaitsFor(int rank) {
  std::string peers;
  for (const int peer : world_.rank(rank).missing()) peers += " " + std::to_string(peer);
  return peers;
}

// What a message may be when it is given to the channels.
void EngineRanks::watch(int from, int to, std::span<const Message> messages) {
  if (broken_.empty() && !peers_[static_cast<std::size_t>(from)].contains(to))
    broken_ = concat("rank ", from, " sends to rank ", to, " without a connection");
  if (world_.rank(from).dead) return;  // it ends, and the other rank may be gone
  const Pipeline& there = *world_.rank(to).pipeline;
  for (const Message& message : messages) {
    const auto header = std::bit_cast<SliceHeader>(message.header);
    if (header.kind != SliceHeader::Kind::Data) continue;
    const SliceId slice = SliceId::fromWire(header.slice);
    auto& ahead = ahead_[{from, to, slice.queue}];
    std::erase_if(ahead, [&](const auto& entry) {
      Watermarks below;
      below[slice.queue] = entry.first + 1;
      return there.hasBegun(below);
    });
    Watermarks below;
    below[slice.queue] = slice.sequence + 1;
    if (there.hasBegun(below)) continue;
    ahead[slice.sequence] += message.header.bytes;
    std::uint64_t bytes = 0;
    for (const auto& [sequence, count] : ahead) bytes += count;
    if (bytes > creditBytes_ && broken_.empty()) {
      broken_ = concat("rank ", from, " has ", bytes, " bytes on their way to rank ", to,
                       ", which has not begun with them: the credit is ", creditBytes_, " bytes");
    }
  }
}

}  // namespace fairring::testing
