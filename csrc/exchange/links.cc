#include "exchange/links.h"

#include <cassert>

namespace fairring {

Links::Links(Loop& loop, std::shared_ptr<Entrance> entrance, Events events)
    : loop_(loop), entrance_(std::move(entrance)), events_(std::move(events)) {}

Links::~Links() { entrance_->close(); }

void Links::want(const std::vector<Wanted>& wanted, std::chrono::milliseconds timeout) {
  assert(loop_.isCurrent());
  for (const Wanted& one : wanted) missing_.emplace(one.peer, one.purpose);
  entrance_->open([this](Arrival arrival) { take(std::move(arrival)); });
  for (const Wanted& one : wanted) {
    if (entrance_->rank > one.peer) connect(one, timeout);
  }
}

void Links::connect(const Wanted& wanted, std::chrono::milliseconds timeout) {
  const Greeting greeting{.purpose = wanted.purpose,
                          .from = static_cast<std::uint32_t>(entrance_->rank),
                          .to = static_cast<std::uint32_t>(wanted.peer),
                          .group = entrance_->id};
  const auto key = std::pair(wanted.peer, wanted.purpose);
  const auto finished = [this, key](const Error& error) {
    const auto handshake = connecting_.extract(key);
    if (error) return events_.failed(key.first, error);
    take({key.first, key.second, handshake.mapped()->takeSocket()});
  };
  try {
    connecting_[key] = std::make_unique<Handshake>(loop_, startConnect(wanted.address),
                                                   Hello(greeting, entrance_->secret), timeout, finished);
  } catch (const Failure& failure) {
    // Not from within: who asked for the connections is still at it.
    loop_.post([failed = events_.failed, peer = wanted.peer, error = failure.error()] { failed(peer, error); });
  }
}

void Links::take(Arrival arrival) {
  // What nobody waits for (a second connection of the same peer and purpose) is closed by going out of scope.
  if (missing_.erase({arrival.peer, arrival.purpose}) > 0) events_.linked(std::move(arrival));
}

std::set<int> Links::missing() const {
  std::set<int> peers;
  for (const auto& [peer, purpose] : missing_) peers.insert(peer);
  return peers;
}

}  // namespace fairring
