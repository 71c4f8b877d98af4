// The loop's descriptors, and its alarm, which is one of them.
#include <sys/epoll.h>

#include <array>
#include <cassert>
#include <utility>

#include "base/error.h"
#include "base/loop.h"

namespace fairring {

namespace {

constexpr std::uint64_t kAlarmToken = 0;

Descriptor opened(int fd, const char* call) {
  if (fd < 0) throw Failure(systemError(call));
  return Descriptor(fd);
}

}  // namespace

Loop::Loop() : now_(Clock::now), work_([this] { post([this] { runOver(); }); }) {
  openDescriptors();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kAlarmToken;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, ownership_.alarm(), &event) != 0)
    throw Failure(systemError("epoll_ctl"));
}

Loop::Loop(Now now)
    : now_(std::move(now)),
      ownership_(ProgressOwnership::Alarm::None),
      work_([this] { post([this] { runOver(); }); }) {}

void Loop::openDescriptors() { epoll_ = opened(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1"); }

void Loop::watch(int fd, std::uint32_t epollEvents, Ready ready) {
  assert(isCurrent());
  if (!epoll_) openDescriptors();
  const std::uint64_t token = nextId_++;
  epoll_event event{};
  event.events = epollEvents;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw Failure(systemError("epoll_ctl"));
  watched_[fd] = {token, std::make_shared<Ready>(std::move(ready))};
  tokens_[token] = fd;
}

void Loop::rewatch(int fd, std::uint32_t epollEvents) {
  assert(isCurrent());
  epoll_event event{};
  event.events = epollEvents;
  event.data.u64 = watched_.at(fd).token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) throw Failure(systemError("epoll_ctl"));
}

void Loop::unwatch(int fd) {
  assert(isCurrent());
  const auto watched = watched_.find(fd);
  if (watched == watched_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  tokens_.erase(watched->second.token);
  watched_.erase(watched);
}

bool Loop::serveDescriptors() {
  if (!epoll_) return false;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t token = events[i].data.u64;  // a copy: the event is packed
    if (token == kAlarmToken) {
      ownership_.quietAlarm();
      continue;
    }
    // A token names it, not its descriptor: an earlier handler of this turn may have closed it, and its number may be
    // new again.
    const auto watched = tokens_.find(token);
    if (watched == tokens_.end()) continue;
    const auto ready = watched_.at(watched->second).ready;
    const std::uint32_t happened = events[i].events;
    invoke([&] { (*ready)(happened); });
  }
  return count > 0;
}

}  // namespace fairring
