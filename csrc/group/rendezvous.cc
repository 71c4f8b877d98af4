#include "group/rendezvous.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace fairring {
namespace {

constexpr std::chrono::milliseconds kFirstPause{2};  // between two looks
constexpr std::chrono::milliseconds kLongestPause{256};

std::string listed(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  const std::string text = joined(ranks | std::views::take(kShown), ", ");
  return ranks.size() > kShown ? concat(text, " and ", ranks.size() - kShown, " more") : text;
}

}  // namespace

Rendezvous::Rendezvous(KeyValue& store, Connect connect, BootstrapOptions options, BootstrapSteps steps,
                       Departures& departures)
    : options_(std::move(options)),
      connect_(std::move(connect)),
      bootstrap_(store, options_, std::move(steps), departures) {}

bool Rendezvous::hasMet() {
  const std::lock_guard lock(looking_);
  return !bootstrap_.facts().empty();
}

const std::vector<RankFacts>& Rendezvous::meet(const Patience& patience) {
  std::unique_lock looking(looking_);
  if (!bootstrap_.facts().empty()) return bootstrap_.facts();
  const std::unique_ptr<KeyValue> store = connect_();
  const auto begin = Clock::now();
  std::chrono::milliseconds rest = kFirstPause;
  auto allAlive = begin;                // as far as is known
  auto naming = begin + kLongestPause;  // of the missing ranks: seldom, because it asks the store much in a large group
  for (std::int64_t generation = bootstrap_.generation();;) {
    Bootstrap::Look look = bootstrap_.look(*store);
    const bool isMissing = look.state == Bootstrap::State::Missing;
    const auto now = Clock::now();
    const bool isOver = patience.timeout.count() != 0 && now >= begin + patience.timeout;
    if (isMissing && (isOver || now >= naming)) {
      look.ranks = bootstrap_.missing(*store);
      naming = now + (now - begin);
    }
    if (!isMissing || !look.ranks.empty()) note(look.ranks);
    if (look.state == Bootstrap::State::Met) return bootstrap_.facts();
    if (look.state == Bootstrap::State::MovedOn) continue;
    const bool another = std::exchange(generation, bootstrap_.generation()) != generation;
    if (isMissing || another) allAlive = now;
    if (now - allAlive >= patience.forDead) throw Failure(died(look.ranks, patience.forDead));
    if (isOver && !look.ranks.empty()) throw Failure(missed(look.ranks, patience.timeout));
    looking.unlock();
    pause(rest);
    looking.lock();
    rest = std::min(2 * rest, kLongestPause);
  }
}

void Rendezvous::breakOff(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  brokenOff_.notify_all();
}

std::vector<int> Rendezvous::absent() const {
  const std::lock_guard lock(mutex_);
  return absent_;
}

void Rendezvous::leave() {
  const std::lock_guard lock(mutex_);
  if (!inVain_) bootstrap_.leave();
}

void Rendezvous::note(const std::vector<int>& absent) {
  const std::lock_guard lock(mutex_);
  absent_ = absent;
}

void Rendezvous::pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  if (brokenOff_.wait_for(lock, time, [this] { return static_cast<bool>(error_); })) throw Failure(error_);
}

Error Rendezvous::missed(const std::vector<int>& ranks, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  inVain_ = true;
  return makeError(ErrorKind::Timeout, "rank ", options_.rank, " of group ", options_.name, ": after ", timeout.count(),
                   " ms rank(s) ", listed(ranks), " of ", options_.size, " had not made the group (generation ",
                   generation(), "): check that they were started, are running, and can reach the store")
      .about(ranks);
}

Error Rendezvous::died(const std::vector<int>& ranks, std::chrono::nanoseconds forDead) {
  const std::lock_guard lock(mutex_);
  inVain_ = true;
  return makeError(ErrorKind::PeerDied, "rank ", options_.rank, " of group ", options_.name, ": rank(s) ",
                   listed(ranks), " of ", options_.size, " made the group and died before it was used: for ",
                   std::chrono::duration_cast<std::chrono::milliseconds>(forDead).count(),
                   " ms nobody has listened where they did, and they have not come again ",
                   "(FAIRRING_HEARTBEAT_TIMEOUT says how long to wait for that); look at their own output")
      .about(ranks);
}

}  // namespace fairring
