#include "transport/verbs_hardware.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "base/error.h"
#include "transport/verbs_library.h"

namespace fairring {

namespace {

constexpr std::uint32_t kInlineBytes = 128;  // a header and some words; all devices of today have more
// 4.096 us * 2^18 = 1.07 s, which devices may stretch to four times as much. Seven of them pass before a connection
// that nobody answers breaks: 7.5 to 30 s, so a switch may take 5 s to fail over. One more retry would be endless ones
// for soft-RoCE.
constexpr std::uint8_t kTimeout = 18;
constexpr std::uint8_t kRetries = 6;
// Receives are posted before the peer may send, so these waits only forgive a device that is behind itself.
constexpr std::uint8_t kNotReadyTimer = 14;  // 1 ms
constexpr std::uint8_t kNotReadyRetries = 6;
constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint32_t kPacketNumbers = (1 << 24) - 1;

constexpr unsigned kKindShift = 32;

using Completed = VerbsCompletion::Kind;

std::uint64_t idOf(Completed kind, std::uint32_t index) {
  return static_cast<std::uint64_t>(kind) << kKindShift | index;
}

template <class... Parts>
[[noreturn]] void refuse(const std::string& device, int error, const Parts&... parts) {
  throw Failure(makeError(ErrorKind::Configuration, "RDMA by ", device, ": ", concat(parts...), ": ",
                          std::strerror(error), error == ENOMEM ? "; set ulimit -l unlimited" : ""));
}

template <auto Destroy>
struct By {
  const VerbsLibrary* library = nullptr;
  template <class Object>
  void operator()(Object* object) const noexcept {
    (library->*Destroy)(object);
  }
};
template <class Object, auto Destroy>
using Owned = std::unique_ptr<Object, By<Destroy>>;

class HardwareQueuePair final : public VerbsQueuePair {
 public:
  HardwareQueuePair(const VerbsLibrary& library, const RdmaPort& port, std::string device, verbs::QueuePair* pair,
                    std::uint32_t mtu, std::uint32_t inlineBytes, PeerAccess access)
      : library_(library),
        port_(port),
        device_(std::move(device)),
        pair_(pair, {&library}),
        mtu_(mtu),
        inlineBytes_(inlineBytes),
        firstPacket_(std::random_device{}() & kPacketNumbers) {
    verbs::QueuePairState state{};
    state.state = verbs::kStateInit;
    state.port = static_cast<std::uint8_t>(port.number);
    state.access = access == PeerAccess::Read ? verbs::kRemoteRead : 0;
    modify(state, verbs::kOfInit, "a queue pair can't be initialised");
  }

  QueuePairName name() const override { return {pair_->number, firstPacket_}; }

  void connect(const VerbsAddress& peer, const QueuePairName& name) override {
    verbs::QueuePairState state{};
    state.state = verbs::kStateReadyToReceive;
    state.mtu = std::min(mtu_, peer.mtu);
    state.destination = name.number;
    state.firstPacketReceived = name.firstPacket;
    state.readsReceived = kReadsAtOnce;
    state.receiverNotReadyTimer = kNotReadyTimer;
    state.address.lid = peer.lid;
    state.address.port = static_cast<std::uint8_t>(port_.number);
    state.address.isGlobal = port_.linkLayer == "Ethernet" || peer.lid == 0 ? 1 : 0;
    state.address.gidIndex = static_cast<std::uint8_t>(port_.gidIndex);
    state.address.hopLimit = kHopLimit;
    std::memcpy(state.address.gid.data(), peer.gid.data(), state.address.gid.size());
    modify(state, verbs::kOfReadyToReceive, "the peer's port can't be addressed");
    state = {};
    state.state = verbs::kStateReadyToSend;
    state.timeout = kTimeout;
    state.retries = kRetries;
    state.receiverNotReadyRetries = kNotReadyRetries;
    state.firstPacketSent = firstPacket_;
    state.readsSent = kReadsAtOnce;
    modify(state, verbs::kOfReadyToSend, "a queue pair can't be made ready to send");
  }

  void receive(std::uint32_t index, std::span<std::byte> into, std::uint32_t localKey) override {
    verbs::ScatterEntry entry = entryOf(into, localKey);
    verbs::ReceiveRequest request{idOf(Completed::Receive, index), nullptr, &entry, 1};
    verbs::ReceiveRequest* bad = nullptr;
    check(pair_->context->operations.postReceive(pair_.get(), &request, &bad), "a receive");
  }
  void send(std::uint32_t index, std::span<const std::byte> from, std::uint32_t localKey) override {
    verbs::SendRequest request = requestOf(Completed::Send, index, verbs::kOpcodeSend);
    if (from.size() <= inlineBytes_) request.flags |= verbs::kFlagInline;
    post(request, entryOf(from, localKey), "a send");
  }
  void read(std::span<std::byte> into, std::uint32_t localKey, std::uint64_t address,
            std::uint32_t remoteKey) override {
    verbs::SendRequest request = requestOf(Completed::Read, 0, verbs::kOpcodeRead);
    request.remoteAddress = address;
    request.remoteKey = remoteKey;
    post(request, entryOf(into, localKey), "a read");
  }

 private:
  static verbs::ScatterEntry entryOf(std::span<const std::byte> memory, std::uint32_t localKey) {
    return {reinterpret_cast<std::uint64_t>(memory.data()), static_cast<std::uint32_t>(memory.size()), localKey};
  }
  static verbs::SendRequest requestOf(Completed kind, std::uint32_t index, std::uint32_t opcode) {
    verbs::SendRequest request{};
    request.id = idOf(kind, index);
    request.opcode = opcode;
    request.flags = verbs::kFlagSignaled;
    return request;
  }
  void post(verbs::SendRequest& request, verbs::ScatterEntry entry, const char* what) {
    request.entries = &entry;
    request.entryCount = 1;
    verbs::SendRequest* bad = nullptr;
    check(pair_->context->operations.postSend(pair_.get(), &request, &bad), what);
  }
  void modify(verbs::QueuePairState& state, std::uint32_t fields, const char* what) {
    const int error = library_.modifyQueuePair(pair_.get(), &state, static_cast<int>(fields));
    if (error != 0) refuse(device_, error, what);
  }
  void check(int error, const char* what) const {
    if (error == 0) return;
    throw Failure(makeError(ErrorKind::Connection, device_, " refused ", what, ": ", std::strerror(error)));
  }

  const VerbsLibrary& library_;
  const RdmaPort port_;
  const std::string device_;
  const Owned<verbs::QueuePair, &VerbsLibrary::destroyQueuePair> pair_;
  const std::uint32_t mtu_;
  const std::uint32_t inlineBytes_;
  const std::uint32_t firstPacket_;
};

class Hardware final : public VerbsDevice {
 public:
  Hardware(const VerbsLibrary& library, RdmaPort port, std::uint32_t completions);

  VerbsAddress address() const override {
    return {std::string(port_.gidBytes.begin(), port_.gidBytes.end()), state_.lid, state_.mtu, port_.fabric};
  }
  std::string name() const override { return port_.name(); }
  std::string trouble() const override;
  RegisteredMemory registerMemory(std::span<std::byte> memory, PeerAccess access) override;
  void release(const RegisteredMemory& memory) override {
    std::erase_if(regions_, [&](const auto& region) { return region->localKey == memory.localKey; });
  }
  void expectLockable(std::uint64_t bytes, const std::string& use) const override {
    const std::string why = LockableMemory::obstacle(LockableMemory::ofThisProcess().left(), bytes, use);
    check(why.empty(), ErrorKind::Configuration, why);
  }
  std::unique_ptr<VerbsQueuePair> makeQueuePair(QueueDepths depths, PeerAccess access) override;
  std::size_t poll(std::span<VerbsCompletion> into) override;
  int descriptor() const override { return channel_->descriptor; }
  void arm() override { context_->operations.requestNotification(completions_.get(), 0); }
  void takeEvents() override;
  std::string textOf(std::uint32_t status) const override { return library_.textOf(status); }
  int asyncDescriptor() const override { return context_->eventDescriptor; }
  std::optional<VerbsAsyncEvent> takeAsyncEvent() override;

 private:
  template <class Object>
  Object* made(Object* object, const char* what) const {
    if (object == nullptr) refuse(name(), errno, what);
    return object;
  }
  verbs::Context* opened() const;
  std::optional<VerbsAsyncEvent> meaningOf(const verbs::AsyncEvent& event) const;

  // In the order of their making: they end in the reverse order.
  const VerbsLibrary& library_;
  const RdmaPort port_;
  const Owned<verbs::Context, &VerbsLibrary::closeDevice> context_;
  const Owned<verbs::ProtectionDomain, &VerbsLibrary::freeDomain> domain_;
  const Owned<verbs::CompletionChannel, &VerbsLibrary::destroyChannel> channel_;
  const Owned<verbs::CompletionQueue, &VerbsLibrary::destroyCompletions> completions_;
  std::vector<Owned<verbs::MemoryRegion, &VerbsLibrary::deregisterMemory>> regions_;
  verbs::PortState state_{};
};

Hardware::Hardware(const VerbsLibrary& library, RdmaPort port, std::uint32_t completions)
    : library_(library),
      port_(std::move(port)),
      context_(opened(), {&library}),
      domain_(made(library.allocateDomain(context_.get()), "no protection domain"), {&library}),
      channel_(made(library.createChannel(context_.get()), "no completion channel"), {&library}),
      completions_(
          made(library.createCompletions(context_.get(), static_cast<int>(completions), nullptr, channel_.get(), 0),
               "no completion queue"),
          {&library}) {
  for (const int descriptor : {channel_->descriptor, context_->eventDescriptor})
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  const int error = library.queryPort(context_.get(), static_cast<std::uint8_t>(port_.number), &state_);
  if (error != 0) refuse(name(), error, "the port can't be asked for its state");
}

verbs::Context* Hardware::opened() const {
  int count = 0;
  verbs::Device** const devices = library_.getDevices(&count);
  if (devices == nullptr) refuse(name(), errno, "libibverbs lists no devices");
  verbs::Device** const found =
      std::find_if(devices, devices + count, [&](verbs::Device* one) { return library_.nameOf(one) == port_.device; });
  verbs::Context* const context = found == devices + count ? nullptr : library_.openDevice(*found);
  const int error = found == devices + count ? ENODEV : errno;
  library_.freeDevices(devices);
  if (context == nullptr) refuse(name(), error, "libibverbs can't open it");
  return context;
}

RegisteredMemory Hardware::registerMemory(std::span<std::byte> memory, PeerAccess access) {
  const std::uint32_t rights = verbs::kLocalWrite | (access == PeerAccess::Read ? verbs::kRemoteRead : 0);
  verbs::MemoryRegion* const region =
      library_.registerMemory(domain_.get(), memory.data(), memory.size(), static_cast<int>(rights));
  if (region == nullptr) refuse(name(), errno, memory.size(), " B of memory can't be registered");
  regions_.emplace_back(region, By<&VerbsLibrary::deregisterMemory>{&library_});
  return {memory.data(), memory.size(), region->localKey, region->remoteKey};
}

std::string Hardware::trouble() const {
  for (const RdmaPort& now : rdmaPorts()) {
    if (now.device == port_.device && now.number == port_.number) return now.obstacle;
  }
  return "the device is gone";
}

std::unique_ptr<VerbsQueuePair> Hardware::makeQueuePair(QueueDepths depths, PeerAccess access) {
  verbs::QueuePairMaking making{};
  making.sendQueue = making.receiveQueue = completions_.get();
  making.type = verbs::kReliableConnection;
  making.capacity = {depths.sends, depths.receives, 1, 1, kInlineBytes};
  verbs::QueuePair* pair = library_.createQueuePair(domain_.get(), &making);
  if (pair == nullptr) {  // a device that sends nothing inline
    making.capacity = {depths.sends, depths.receives, 1, 1, 0};
    pair = made(library_.createQueuePair(domain_.get(), &making), "no queue pair");
  }
  return std::make_unique<HardwareQueuePair>(library_, port_, name(), pair, state_.mtu, making.capacity.inlineBytes,
                                             access);
}

std::size_t Hardware::poll(std::span<VerbsCompletion> into) {
  std::array<verbs::Completion, 16> found;
  const int count = context_->operations.pollCompletions(
      completions_.get(), static_cast<int>(std::min(found.size(), into.size())), found.data());
  if (count < 0) throw Failure(makeError(ErrorKind::Connection, name(), " can't be polled for completions"));
  for (int i = 0; i < count; ++i) {
    const verbs::Completion& one = found[i];
    into[i] = {one.queuePair,
               static_cast<Completed>(one.id >> kKindShift),
               static_cast<std::uint32_t>(one.id),
               one.bytes,
               one.status,
               one.vendorError};
  }
  return static_cast<std::size_t>(count);
}

void Hardware::takeEvents() {
  verbs::CompletionQueue* queue = nullptr;
  void* ours = nullptr;
  while (library_.getEvent(channel_.get(), &queue, &ours) == 0) library_.acknowledgeEvents(queue, 1);
}

// An object can't be destroyed while an event of it is not acknowledged, so all are, at once. Those that mean nothing
// here are passed over.
std::optional<VerbsAsyncEvent> Hardware::takeAsyncEvent() {
  verbs::AsyncEvent event{};
  while (library_.getAsyncEvent(context_.get(), &event) == 0) {
    const std::optional<VerbsAsyncEvent> meaning = meaningOf(event);
    library_.acknowledgeAsyncEvent(&event);
    if (meaning) return meaning;
  }
  return std::nullopt;
}

std::optional<VerbsAsyncEvent> Hardware::meaningOf(const verbs::AsyncEvent& event) const {
  using Kind = VerbsAsyncEvent::Kind;
  const std::string text = library_.textOfEvent(event.type);
  switch (event.type) {
    case verbs::kEventDeviceFailed:
    case verbs::kEventCompletionsFailed: return VerbsAsyncEvent{Kind::DeviceFailed, 0, text};
    case verbs::kEventPairFailed:
    case verbs::kEventPairRefusedRequest:
    case verbs::kEventPairRefusedAccess: return VerbsAsyncEvent{Kind::QueuePairFailed, event.of.pair->number, text};
    case verbs::kEventLidChanged: {
      verbs::PortState now{};
      if (event.of.port != port_.number) return std::nullopt;
      if (library_.queryPort(context_.get(), static_cast<std::uint8_t>(port_.number), &now) != 0 || now.lid == 0 ||
          now.lid == state_.lid)
        return std::nullopt;
      return VerbsAsyncEvent{Kind::DeviceFailed, 0, concat(text, " from ", state_.lid, " to ", now.lid)};
    }
    case verbs::kEventPortActive:
    case verbs::kEventPortDown:
    case verbs::kEventGidChanged:
      if (event.of.port != port_.number) return std::nullopt;
      return VerbsAsyncEvent{Kind::PortChanged, 0, text};
    default: return std::nullopt;
  }
}

}  // namespace

std::string verbsObstacle(const RdmaOffer& offer) try {
  if (!offer.obstacle.empty()) return offer.obstacle;
  constexpr std::uint32_t kSome = 16;
  openVerbsPort(nearestPort(0, offer.fabric), kSome)->makeQueuePair({kSome / 2, kSome / 2}, PeerAccess::Read);
  return {};
} catch (const Failure& refusal) {
  return refusal.what();
}

std::unique_ptr<VerbsDevice> openVerbsPort(const RdmaPort& port, std::uint32_t completions) {
  const VerbsLibrary* const library = VerbsLibrary::load();
  check(library != nullptr, ErrorKind::Configuration, "libibverbs.so.1 can't be loaded; install rdma-core");
  return std::make_unique<Hardware>(*library, port, completions);
}

}  // namespace fairring
