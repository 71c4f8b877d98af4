#include "backend/stock_backends.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "backend/device_sockets.h"
#include "base/error.h"

namespace fairring {
namespace {

constexpr std::chrono::milliseconds kRound{50};  // between two times that connections are shut

void shutAll(const std::vector<int>& epolls) {
  for (const int epoll : epolls) shutConnections(epoll);
}

}  // namespace

StockBackends::StockBackends(StorePtr store, Make make, AbortableStore::LookAround lookAround)
    : lookAround_(std::move(lookAround)),
      make_(std::make_shared<const Make>(std::move(make))),
      store_(std::move(store)) {}

void StockBackends::beginGloo(Meet meet, std::function<void()> giveUp) {
  const std::lock_guard lock(mutex_);
  beginning_ = true;
  giveUp_ = std::move(giveUp);
  try {
    beginner_ = Errand([self = shared_from_this(), meet = std::move(meet)] { self->makeInBackground(meet); });
  } catch (const std::system_error&) {  // no threads left: the first call makes it
    beginning_ = false;
  }
}

void StockBackends::makeInBackground(const Meet& meet) {
  std::optional<std::int64_t> generation;
  std::string failure;
  try {
    generation = meet();
    const BackendPtr gloo = make(c10::DeviceType::CPU, [generation] { return *generation; });
    awaitOthers(*gloo, *generation);
  } catch (const c10::Error& error) {
    failure = error.what_without_backtrace();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::lock_guard lock(mutex_);
  // Where the ranks have not met, the first call finds out why.
  if (generation && !failure.empty()) notMade_ = std::make_exception_ptr(c10::DistBackendError(failure));
  beginning_ = false;
  changed_.notify_all();
}

// Who has connected to all may not go yet: his going would be a failure to those who have not. Who goes all the same,
// after his patience, is not looked for.
void StockBackends::awaitOthers(const c10d::Backend& gloo, std::int64_t generation) {
  try {
    StorePtr shared;
    {
      const std::lock_guard lock(mutex_);
      shared = store_;
    }
    if (!shared) return;
    const StorePtr mine = shared->clone();
    const std::string prefix = concat("fairring/", generation, "/gloo/");
    const std::string next = concat(prefix, "made/", (gloo.getRank() + 1) % gloo.getSize());
    AbortableStore store(mine, broken_, [&](const std::function<bool()>& stillWaits) {
      lookAround_([&] { return stillWaits() && !mine->check({next}); });
    });
    const std::vector<std::uint8_t> yes{1};
    store.set(concat(prefix, "made/", gloo.getRank()), yes);
    if (store.add(prefix + "made", 1) == gloo.getSize()) store.set(prefix + "all", yes);
    store.wait({prefix + "all"});
    // NOLINTNEXTLINE(bugprone-empty-catch): all were done, and the store went with the rank that has it; or it failed
  } catch (const std::exception&) {
  }
}

void StockBackends::awaitGloo(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto longest = std::min<std::chrono::milliseconds>(limit, kPatienceWithRanks);
  changed_.wait_for(lock, longest, [this] { return !beginning_ || broken_->rings(); });
}

bool StockBackends::isBeginning() const {
  const std::lock_guard lock(mutex_);
  return beginning_ && !broken_->rings();
}

void StockBackends::awaitBeginning() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !beginning_ || broken_->rings(); });
  if (notMade_) std::rethrow_exception(notMade_);
}

StockBackends::BackendPtr StockBackends::get(c10::DeviceType device, const Meet& meet,
                                             const std::function<void(c10d::Backend&)>& prepare) {
  if (device == c10::DeviceType::CPU) {
    if (isBeginning()) meet();  // for the ranks, with a caller's patience
    awaitBeginning();
  }
  const std::lock_guard making(making_);
  const auto find = [&]() -> Made* {
    const auto found = made_.find(device);
    return found == made_.end() ? nullptr : &found->second;
  };
  {
    const std::lock_guard lock(mutex_);
    const Made* made = find();
    if (made && made->prepared) return made->backend;
  }
  const BackendPtr backend = make(device, meet);
  prepare(*backend);
  const std::lock_guard lock(mutex_);
  if (Made* made = find()) made->prepared = true;
  return backend;
}

StockBackends::BackendPtr StockBackends::make(c10::DeviceType device, const Meet& meet) {
  std::shared_ptr<const Make> make;
  StorePtr shared;
  {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(device);
    if (found != made_.end()) return found->second.backend;
    make = make_;
    shared = store_;
  }
  TORCH_CHECK_WITH(DistBackendError, make, "this process group has ended");
  const std::int64_t generation = meet();
  // Of another's, two ranks may wait for each other long after the rest have gone.
  const auto lookAround = device == c10::DeviceType::CPU ? lookAround_ : [](const std::function<bool()>&) {};
  const auto store = c10::make_intrusive<AbortableStore>(shared->clone(), broken_, lookAround);
  auto [backend, epolls] = (*make)(c10::DeviceTypeName(device, /*lower_case=*/true), generation, store);
  const auto devices = device == c10::DeviceType::CPU ? backend->getBackendOptions() : nullptr;
  const std::lock_guard lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, make_ && !broken_->rings(), "the group ended while its stock backend was made");
  made_[device] = {backend, devices, std::move(epolls)};
  return backend;
}

std::vector<StockBackends::BackendPtr> StockBackends::made() const {
  const std::lock_guard lock(mutex_);
  std::vector<BackendPtr> all;
  all.reserve(made_.size());
  for (const auto& [device, made] : made_) all.push_back(made.backend);
  return all;
}

bool StockBackends::hasEnded() const {
  const std::lock_guard lock(mutex_);
  return !make_;
}

void StockBackends::breakOff() {
  std::vector<BackendPtr> others;
  {
    const std::lock_guard lock(mutex_);
    broken_->ring();
    for (const auto& [device, made] : made_) {
      if (device == c10::DeviceType::CPU) {
        shutAll(made.epolls);  // here, for a reference kept beyond the lock could be the last, and waits to be dropped
      } else {
        others.push_back(made.backend);
      }
    }
    changed_.notify_all();
  }
  for (const BackendPtr& backend : others) backend->abort();
}

// Peers that go on need this rank's part in the making.
void StockBackends::endBeginning() {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return !beginning_ || broken_->rings(); };
  std::function<void()> giveUp = std::exchange(giveUp_, nullptr);
  changed_.wait_for(lock, kPatienceWithRanks, over);
  if (beginning_) {
    broken_->ring();
    lock.unlock();
    if (giveUp) giveUp();
    lock.lock();
    if (!changed_.wait_for(lock, kPatience, [this] { return !beginning_; })) return;
  }
  Errand beginner = std::move(beginner_);
  lock.unlock();
  beginner.join();
}

void StockBackends::end() {
  endBeginning();
  std::map<c10::DeviceType, Made> ending;
  std::shared_ptr<const Make> make;
  StorePtr store;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(made_);
    make.swap(make_);
    store.swap(store_);
  }
  for (auto& [device, made] : ending) {
    made.backend->shutdown();
    if (device == c10::DeviceType::CPU) endGloo(std::move(made));
  }
}

void StockBackends::endGloo(Made made) {
  const auto ended = std::make_shared<bool>(false);
  Errand ender;
  try {
    ender = Errand([self = shared_from_this(), ended, backend = std::move(made.backend)]() mutable {
      backend.reset();
      const std::lock_guard lock(self->mutex_);
      *ended = true;
      self->changed_.notify_all();
    });
  } catch (const std::system_error&) {  // no threads left: then it was waited for here
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return *ended || broken_->rings(); });
  for (auto waited = kRound; !*ended && waited <= kPatience; waited += kRound) {
    lock.unlock();
    shutAll(made.epolls);
    lock.lock();
    changed_.wait_for(lock, kRound, [&] { return *ended; });
  }
  if (!*ended) return;
  lock.unlock();
  ender.join();
}

}  // namespace fairring
