#include "transport/verbs_endpoint.h"

#include <sys/epoll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "base/error.h"
#include "transport/verbs_slot.h"

namespace fairring {

namespace {

constexpr std::chrono::milliseconds kGoodbyes{20};
constexpr std::size_t kPageBytes = 4096;

// Shared, so that a forked child's memory is the same: else the first write after a fork would give this process a page
// that the device does not know.
std::byte* mapped(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Failure(systemError("mmap of the slots for RDMA"));
  return static_cast<std::byte*>(memory);
}

std::uint64_t slotBytesOfOne() { return (2 * VerbsEndpoint::kSlots + 1) * kSlotBytes; }

}  // namespace

std::uint32_t VerbsEndpoint::completionsFor(std::size_t peers) {
  return static_cast<std::uint32_t>(peers) * (2 * kSlots + 1 + kReads);
}

std::uint64_t VerbsEndpoint::slotBytesFor(std::size_t peers) {
  return (peers * slotBytesOfOne() + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void VerbsEndpoint::Unmap::operator()(std::byte* memory) const noexcept { ::munmap(memory, bytes); }

VerbsEndpoint::VerbsEndpoint(Loop& loop, std::unique_ptr<VerbsDevice> device, std::span<std::byte> staging,
                             std::size_t peers)
    : loop_(loop),
      device_(std::move(device)),
      memory_(mapped(slotBytesFor(peers)), Unmap{slotBytesFor(peers)}),
      staging_(staging.empty() ? RegisteredMemory() : device_->registerMemory(staging)),
      slots_(device_->registerMemory({memory_.get(), slotBytesFor(peers)})),
      patience_(kGoodbyes) {
  loop_.watch(device_->descriptor(), EPOLLIN, [this](std::uint32_t) { onReadable(); });
  loop_.addPoller(this, {.poll = [this] { return poll(); },
                         .setPolling =
                             [this](bool polling) {
                               polling_ = polling;
                               if (!polling) arm();
                             },
                         .turnEnds = [] {}});
  arm();
}

VerbsEndpoint::~VerbsEndpoint() {
  loop_.removePoller(this);
  loop_.unwatch(device_->descriptor());
}

RegisteredMemory VerbsEndpoint::takeSlots() {
  RegisteredMemory slots = slots_;
  slots.data += std::exchange(slotsTaken_, slotsTaken_ + slotBytesOfOne());
  slots.bytes = slotBytesOfOne();
  assert(slotsTaken_ <= slots_.bytes);
  return slots;
}

std::unique_ptr<VerbsQueuePair> VerbsEndpoint::makeQueuePair(QueueDepths depths, OnCompletion onCompletion) {
  auto pair = device_->makeQueuePair(depths);
  pairs_[pair->name().number] = std::make_shared<OnCompletion>(std::move(onCompletion));
  return pair;
}

void VerbsEndpoint::forget(const VerbsQueuePair& pair) { pairs_.erase(pair.name().number); }

// Some of them: others' events go in between, and messages of this rank's. Those that were there when the device was
// armed make nothing readable, so while nobody polls, the next look follows by itself.
bool VerbsEndpoint::poll() {
  std::array<VerbsCompletion, 16> found;
  const std::vector<VerbsCompletion> kept = std::exchange(kept_, {});
  const std::size_t count = device_->poll(found);
  if (kept.empty() && count == 0) return false;
  dispatch(kept);
  dispatch(std::span(found).first(count));
  if (!polling_) pollSoon();
  return true;
}

void VerbsEndpoint::pollSoon() {
  if (std::exchange(pollingSoon_, true)) return;
  loop_.post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->pollingSoon_ = false;
    self->poll();
  });
}

// A handler may end its queue pair, and others.
void VerbsEndpoint::dispatch(std::span<const VerbsCompletion> completions) {
  for (const VerbsCompletion& one : completions) {
    const auto pair = pairs_.find(one.queuePair);
    if (pair == pairs_.end()) continue;
    const std::shared_ptr<OnCompletion> onCompletion = pair->second;
    (*onCompletion)(one);
  }
}

void VerbsEndpoint::arm() {
  if (!std::exchange(armed_, true)) device_->arm();
}

void VerbsEndpoint::onReadable() {
  device_->takeEvents();
  armed_ = false;
  if (!polling_) arm();  // else at the end of the polling
  poll();
}

void VerbsEndpoint::awaitLastSend(const VerbsQueuePair& pair, std::uint32_t index) {
  const auto start = Loop::Clock::now();
  for (bool isDone = false; !isDone && Loop::Clock::now() - start < patience_;) {
    std::array<VerbsCompletion, 1> found;
    if (device_->poll(found) == 0) continue;
    const VerbsCompletion& one = found[0];
    if (one.queuePair == pair.name().number) {
      isDone = one.status != 0 || (one.kind == VerbsCompletion::Kind::Send && one.index == index);
    } else {
      kept_.push_back(one);
    }
  }
  patience_ = std::max(Loop::Clock::duration::zero(), patience_ - (Loop::Clock::now() - start));
  if (!kept_.empty()) pollSoon();
}

}  // namespace fairring
