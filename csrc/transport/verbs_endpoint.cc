#include "transport/verbs_endpoint.h"

#include <sys/epoll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>
#include <utility>

#include "base/error.h"
#include "transport/verbs_slot.h"

namespace fairring {

namespace {

constexpr std::chrono::milliseconds kGoodbyes{20};
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kMostReported = 4;
// Completions of queue pairs that broke may still lie there when those in their place have some.
constexpr std::uint32_t kPairsPerPlace = 2;

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
  return static_cast<std::uint32_t>(peers) * kPairsPerPlace * (2 * kSlots + 1 + kReadsAtOnce + 1);
}

std::uint64_t VerbsEndpoint::slotBytesFor(std::size_t peers) {
  return (peers * slotBytesOfOne() + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void VerbsEndpoint::Unmap::operator()(std::byte* memory) const noexcept { ::munmap(memory, bytes); }

VerbsEndpoint::VerbsEndpoint(Loop& loop, std::unique_ptr<VerbsDevice> device, std::span<std::byte> staging,
                             std::size_t peers)
    : loop_(loop),
      memory_(mapped(slotBytesFor(peers)), Unmap{slotBytesFor(peers)}),
      device_(std::move(device)),
      staging_{staging.empty() ? RegisteredMemory() : device_->registerMemory(staging, PeerAccess::Read)},
      slots_(device_->registerMemory({memory_.get(), slotBytesFor(peers)}, PeerAccess::None)) {
  loop_.watch(device_->descriptor(), EPOLLIN, [this](std::uint32_t) { onReadable(); });
  loop_.watch(device_->asyncDescriptor(), EPOLLIN, [this](std::uint32_t) { onAsyncEvents(); });
  loop_.addPoller(this, {.poll = [this] { return poll(); },
                         .setPolling =
                             [this](bool polling) {
                               polling_ = polling;
                               if (!polling) arm();
                             },
                         .turnEnds = [] {}});
  arm();
}

// All goodbyes have been posted by now. They are looked for once even where there is no time left.
VerbsEndpoint::~VerbsEndpoint() {
  loop_.removePoller(this);
  loop_.unwatch(device_->descriptor());
  loop_.unwatch(device_->asyncDescriptor());
  const auto start = Loop::Clock::now();
  std::array<VerbsCompletion, 16> found;
  while (!leaving_.empty() && !failure_) {
    dispatch(std::span(found).first(pollDevice(found)));
    if (Loop::Clock::now() - start >= kGoodbyes) break;
  }
}

RegisteredMemory VerbsEndpoint::takeSlots() {
  RegisteredMemory slots = slots_;
  slots.data += std::exchange(slotsTaken_, slotsTaken_ + slotBytesOfOne());
  slots.bytes = slotBytesOfOne();
  assert(slotsTaken_ <= slots_.bytes);
  ++channels_;
  return slots;
}

std::unique_ptr<VerbsQueuePair> VerbsEndpoint::makeQueuePair(QueueDepths depths, PeerAccess access, Handlers handlers) {
  auto pair = device_->makeQueuePair(depths, access);
  pairs_[pair->name().number] = std::make_shared<Handlers>(std::move(handlers));
  return pair;
}

void VerbsEndpoint::forget(const VerbsQueuePair& pair) { pairs_.erase(pair.name().number); }

// Added memory may end when all channels have been closed.
void VerbsEndpoint::channelEnds() {
  if (--channels_ > 0) return;
  for (; staging_.size() > 1; staging_.pop_back()) device_->release(staging_.back());
}

const RegisteredMemory* VerbsEndpoint::staging(const std::byte* first, std::uint64_t bytes) const {
  const auto found = std::ranges::find_if(staging_, [&](const auto& one) { return one.contains(first, bytes); });
  return found == staging_.end() ? nullptr : &*found;
}

void VerbsEndpoint::addStaging(std::span<std::byte> memory) {
  if (memory.empty() || channels_ == 0 || staging(memory.data(), memory.size()) != nullptr) return;
  device_->expectLockable(memory.size(), "a device's staging");
  staging_.push_back(device_->registerMemory(memory, PeerAccess::Read));
}

void VerbsEndpoint::keepUntilSent(std::unique_ptr<VerbsQueuePair> pair, std::uint32_t index) {
  const std::uint32_t number = pair->name().number;
  if (!failure_) leaving_.emplace(number, Leaving{std::move(pair), index});
}

// Some of them: others' events go in between, and messages of this rank's. Those that were there when the device was
// armed make nothing readable, so while nobody polls, the next look follows by itself.
bool VerbsEndpoint::poll() {
  std::array<VerbsCompletion, 16> found;
  const std::size_t count = pollDevice(found);
  if (count == 0) return false;
  dispatch(std::span(found).first(count));
  if (!polling_) pollSoon();
  return true;
}

std::size_t VerbsEndpoint::pollDevice(std::span<VerbsCompletion> into) {
  if (failure_) return 0;
  try {
    return device_->poll(into);
  } catch (const Failure& failure) {
    fail(failure.error());
    return 0;
  }
}

// Ends this endpoint's channels, and nobody else's.
void VerbsEndpoint::fail(const Error& error) {
  failure_ = error;
  leaving_.clear();
  for (const auto& [number, handlers] : std::exchange(pairs_, {})) handlers->deviceFailed(error);
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

void VerbsEndpoint::dispatch(std::span<const VerbsCompletion> completions) {
  for (const VerbsCompletion& one : completions) {
    const auto pair = pairs_.find(one.queuePair);
    if (pair == pairs_.end()) {
      onCompletionOfLeaving(one);
      continue;
    }
    const std::shared_ptr<Handlers> handlers = pair->second;
    handlers->completed(one);
  }
}

void VerbsEndpoint::onCompletionOfLeaving(const VerbsCompletion& completion) {
  const auto leaving = leaving_.find(completion.queuePair);
  if (leaving == leaving_.end()) return;
  const bool isSend = completion.kind == VerbsCompletion::Kind::Send;
  if (completion.status != 0 || (isSend && completion.index == leaving->second.lastSend)) leaving_.erase(leaving);
}

void VerbsEndpoint::arm() {
  if (!std::exchange(armed_, true)) device_->arm();
}

void VerbsEndpoint::onReadable() {
  device_->takeEvents();
  armed_ = false;
  if (failure_) return loop_.unwatch(device_->descriptor());
  if (!polling_) arm();  // else at the end of the polling
  poll();
}

void VerbsEndpoint::onAsyncEvents() {
  using Kind = VerbsAsyncEvent::Kind;
  while (const std::optional<VerbsAsyncEvent> event = device_->takeAsyncEvent()) {
    const Error error = makeError(ErrorKind::Connection, "RDMA by ", device_->name(), " ended: the device reported '",
                                  event->text, "'; look at dmesg");
    switch (event->kind) {
      case Kind::PortChanged:
        reported_.push_back(event->text);
        if (reported_.size() > kMostReported) reported_.pop_front();
        break;
      case Kind::QueuePairFailed:
        if (const auto pair = pairs_.find(event->queuePair); pair != pairs_.end()) {
          const std::shared_ptr<Handlers> handlers = pair->second;
          handlers->deviceFailed(error);
        }
        break;
      case Kind::DeviceFailed: fail(error);
    }
  }
}

std::string VerbsEndpoint::reported() const {
  std::string text;
  for (const std::string& one : reported_) text += (text.empty() ? "" : ", ") + one;
  return text;
}

}  // namespace fairring
