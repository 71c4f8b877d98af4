#include "simulation/network.h"

#include <algorithm>
#include <utility>

namespace fairring::simulation {

namespace {

Time timeOf(std::uint64_t bytes, double bytesPerSecond) {
  return std::max(ofSeconds(static_cast<double>(bytes) / bytesPerSecond), Time(1));
}

}  // namespace

Network::Network(EventQueue& events, std::vector<int> machineOf, const NetworkCosts& costs)
    : events_(events), machineOf_(std::move(machineOf)), costs_(costs) {
  const auto machines = static_cast<std::size_t>(std::ranges::max(machineOf_)) + 1;
  up_.resize(machines);
  down_.resize(machines);
  for (auto* links : {&up_, &down_}) {
    for (Link& link : *links) link.bytesPerSecond = costs.bytesPerSecond;
  }
}

Network::Connection& Network::connection(int from, int to) {
  const auto key = (static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint32_t>(to);
  auto& found = connections_[key];
  if (!found) {
    found = std::make_unique<Connection>();
    found->from = from;
    found->to = to;
    ofRank_[from].push_back(found.get());
  }
  return *found;
}

void Network::send(int from, int to, Parcel parcel) {
  Connection& way = connection(from, to);
  const bool isIdle = way.waiting[0].empty() && way.waiting[1].empty();
  way.waiting[parcel.isUrgent ? 0 : 1].push_back({std::make_shared<Parcel>(std::move(parcel))});
  if (!isIdle) return;
  up_[static_cast<std::size_t>(machine(from))].turns.push_back(&way);
  pumpUp(machine(from));
}

void Network::drop(int from) {
  for (Connection* way : ofRank_[from]) {
    for (auto& waiting : way->waiting) waiting.clear();
    std::erase(up_[static_cast<std::size_t>(machine(from))].turns, way);
  }
}

std::size_t Network::connectionsOf(int rank) const {
  const auto found = ofRank_.find(rank);
  return found == ofRank_.end() ? 0 : found->second.size();
}

void Network::cut(int from, int to, Time until) {
  Time& standing = cuts_[{from, to}];
  standing = std::max(standing, until);
}

Network::Quantum Network::next(Connection& way, std::uint64_t most) {
  auto& waiting = way.waiting[way.waiting[0].empty() ? 1 : 0];
  auto& [parcel, sent] = waiting.front();
  const std::uint64_t bytes = std::min(most, parcel->bytes - sent);
  Quantum quantum{.parcel = parcel, .bytes = bytes, .isFirst = sent == 0, .isLast = sent + bytes == parcel->bytes};
  sent += bytes;
  if (quantum.isLast) waiting.pop_front();
  return quantum;
}

void Network::pumpUp(int from) {
  Link& link = up_[static_cast<std::size_t>(from)];
  if (link.isBusy || link.turns.empty()) return;
  link.isBusy = true;
  Connection& way = *link.turns.front();
  link.turns.pop_front();
  const Quantum quantum = next(way, costs_.quantumBytes);
  if (!way.waiting[0].empty() || !way.waiting[1].empty()) link.turns.push_back(&way);
  link.bytes += quantum.bytes;
  const Time end = events_.now() + timeOf(quantum.bytes, link.bytesPerSecond);
  leave(way, quantum, end);
  events_.at(end, [this, from, &link] {
    link.isBusy = false;
    pumpUp(from);
  });
}

// Its first byte leaves the machine now, its last one at `end`.
void Network::leave(Connection& way, Quantum quantum, Time end) {
  const Time onTheWay = ofSeconds(costs_.latencySeconds) + (delay ? delay() : Time(0));
  Time first = events_.now() + onTheWay;
  quantum.lastByteAt = end + onTheWay;
  const Time held = heldUntil(way);
  if (held == kNever) return;
  first = way.lastArrival = std::max({first, held, way.lastArrival});
  quantum.lastByteAt = std::max(quantum.lastByteAt, first);
  events_.at(first, [this, &way, quantum = std::move(quantum)] {
    way.arriving.push_back(quantum);
    if (way.arriving.size() > 1) return;
    down_[static_cast<std::size_t>(machine(way.to))].turns.push_back(&way);
    pumpDown(machine(way.to));
  });
}

Time Network::heldUntil(const Connection& way) const {
  const auto cut = cuts_.find({machine(way.from), machine(way.to)});
  return cut == cuts_.end() ? Time(0) : cut->second;
}

void Network::pumpDown(int to) {
  Link& link = down_[static_cast<std::size_t>(to)];
  if (link.isBusy || link.turns.empty()) return;
  link.isBusy = true;
  Connection& way = *link.turns.front();
  link.turns.pop_front();
  const Quantum quantum = way.arriving.front();
  way.arriving.pop_front();
  if (!way.arriving.empty()) link.turns.push_back(&way);
  if (quantum.isFirst && !quantum.isLast) quantum.parcel->begun();
  const Time end = std::max(events_.now() + timeOf(quantum.bytes, link.bytesPerSecond), quantum.lastByteAt);
  events_.at(end, [this, to, &link, quantum] {
    link.isBusy = false;
    if (quantum.isFirst && quantum.isLast) quantum.parcel->begun();
    if (quantum.isLast) quantum.parcel->whole();
    pumpDown(to);
  });
}

}  // namespace fairring::simulation
