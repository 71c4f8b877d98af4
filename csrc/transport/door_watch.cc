#include "transport/door_watch.h"

#include <sys/epoll.h>

#include <cassert>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace fairring {

DoorWatch::DoorWatch(Loop& loop, std::chrono::milliseconds every, Shut shut)
    : loop_(loop), every_(every), shut_(std::move(shut)) {}

DoorWatch::~DoorWatch() {
  for (auto& [peer, door] : doors_) endLook(door);
  loop_.cancel(timer_);
}

void DoorWatch::watch(int peer, const SocketAddress& door) {
  assert(loop_.isCurrent());
  if (doors_.empty()) lookLater();
  doors_.try_emplace(peer, Door{door, {}});
}

void DoorWatch::forget(int peer) {
  assert(loop_.isCurrent());
  const auto found = doors_.find(peer);
  if (found == doors_.end()) return;
  endLook(found->second);
  doors_.erase(found);
  if (doors_.empty()) loop_.cancel(timer_);
}

void DoorWatch::lookLater() {
  timer_ = loop_.at(Loop::Clock::now() + every_, [this] { lookAtAll(); });
}

void DoorWatch::lookAtAll() {
  lookLater();
  for (auto& [peer, door] : doors_) {
    if (!door.look) begin(peer, door);
  }
}

void DoorWatch::begin(int peer, Door& door) {
  try {
    door.look = startConnect(door.address);
    loop_.watch(door.look.get(), EPOLLOUT, [this, peer](std::uint32_t) { onAnswer(peer); });
  } catch (const Failure&) {  // no way there, or no descriptor left: the next look may find one
    door.look = {};
  }
}

void DoorWatch::onAnswer(int peer) {
  const auto found = doors_.find(peer);
  Door& door = found->second;
  const bool refused = finishConnect(door.look) == ECONNREFUSED;
  endLook(door);
  if (!std::exchange(door.refused, refused) || !refused) return;
  forget(peer);
  shut_(peer);
}

void DoorWatch::endLook(Door& door) {
  if (!door.look) return;
  loop_.unwatch(door.look.get());
  door.look = {};
}

}  // namespace fairring
