// Fuzzes what a peer that has passed the challenge sends to a channel over verbs: its contact, and the bytes of slots.
// For any bytes, nothing is written outside of the place that the receiver gave for a message, or after it was told
// that the message is there; the channel reads into staging alone and ends once at most. The input is a byte, which
// says whether a contact follows or slots, to which of two ranks, and whether the contact is the second one; slots are
// two bytes for the length, then so many.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/loop.h"
#include "transport/verbs_channel.h"
#include "transport/verbs_slot.h"

using namespace fairring;

namespace {

constexpr std::uint64_t kStaging = 320 << 10;  // a piece of a read, and some of another

void require(bool holds) {
  if (!holds) std::abort();
}

// A port whose peer is the input. All that it is asked for goes well, at once.
class Device final : public VerbsDevice {
 public:
  using Kind = VerbsCompletion::Kind;

  struct Pair final : VerbsQueuePair {
    Pair(Device& owner, std::uint32_t itsNumber) : device(owner), number(itsNumber) {}
    ~Pair() override { device.receives_.erase(number); }
    QueuePairName name() const override { return {number, 0}; }
    void connect(const VerbsAddress&, const QueuePairName&) override {}
    void receive(std::uint32_t index, std::span<std::byte> into, std::uint32_t) override {
      require(device.slots_.contains(into.data(), into.size()));
      device.receives_[number].emplace_back(index, into);
    }
    void send(std::uint32_t index, std::span<const std::byte> from, std::uint32_t) override {
      require(device.slots_.contains(from.data(), from.size()) && from.size() <= kSlotBytes);
      device.push({number, Kind::Send, index});
    }
    void read(std::span<std::byte> into, std::uint32_t, std::uint64_t, std::uint32_t) override {
      require(device.staging_.contains(into.data(), into.size()) && !into.empty());
      std::ranges::fill(into, std::byte{1});
      device.push({number, Kind::Read, 0});
    }

    Device& device;
    const std::uint32_t number;
  };

  explicit Device(Device*& self) : self_(self) { self_ = this; }
  ~Device() override { self_ = nullptr; }

  // A slot of the peer's, by the first of the channel's two queue pairs. False: the channel has ended.
  bool deliver(std::span<const std::byte> bytes) { return deliver(bytes, receives_.begin()); }
  // By the second.
  void signal() { deliver({}, std::prev(receives_.end())); }

  VerbsAddress address() const override { return {std::string(16, 'g'), 1, 5, "fuzzed"}; }
  std::string name() const override { return "fuzzed port"; }
  std::string trouble() const override { return {}; }
  RegisteredMemory registerMemory(std::span<std::byte> memory, PeerAccess access) override {
    RegisteredMemory& which = access == PeerAccess::Read ? staging_ : slots_;
    return which = {memory.data(), memory.size(), 1, 1};
  }
  void release(const RegisteredMemory&) override {}
  void expectLockable(std::uint64_t, const std::string&) const override {}
  std::unique_ptr<VerbsQueuePair> makeQueuePair(QueueDepths, PeerAccess) override {
    return std::make_unique<Pair>(*this, ++pairs_);
  }
  std::size_t poll(std::span<VerbsCompletion> into) override {
    const std::size_t count = std::min(into.size(), completions_.size());
    std::copy_n(completions_.begin(), count, into.begin());
    completions_.erase(completions_.begin(), completions_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  int descriptor() const override { return event_.get(); }
  void arm() override {}
  void takeEvents() override {
    std::uint64_t count = 0;
    require(::read(event_.get(), &count, sizeof count) == sizeof count);
  }
  std::string textOf(std::uint32_t) const override { return "a status"; }
  int asyncDescriptor() const override { return async_.get(); }
  std::optional<VerbsAsyncEvent> takeAsyncEvent() override { return std::nullopt; }

 private:
  using Receives =
      std::map<std::uint32_t, std::deque<std::pair<std::uint32_t, std::span<std::byte>>>>;  // by queue pair

  bool deliver(std::span<const std::byte> bytes, Receives::iterator to) {
    if (to == receives_.end() || to->second.empty()) return false;
    auto& [pair, receives] = *to;
    const auto [index, memory] = receives.front();
    receives.pop_front();
    std::ranges::copy(bytes, memory.begin());
    push({pair, Kind::Receive, index, static_cast<std::uint32_t>(bytes.size())});
    return true;
  }
  void push(const VerbsCompletion& completion) {
    completions_.push_back(completion);
    const std::uint64_t one = 1;
    require(::write(event_.get(), &one, sizeof one) == sizeof one);
  }

  Device*& self_;
  const Descriptor event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  const Descriptor async_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  RegisteredMemory staging_;
  RegisteredMemory slots_;
  std::uint32_t pairs_ = 0;
  Receives receives_;
  std::deque<VerbsCompletion> completions_;
};

// Gives messages that ask for it memory of exactly their size, and takes it away when they have come: the sanitizer
// sees what is written to neither. Others go to staging.
class Receiver final : public MessageReceiver {
 public:
  std::byte* place(int, const MessageHeader& header) override {
    if (header.kind != 1 || header.bytes > kStaging) return nullptr;
    if (header.fields[1] == 1) return staging.data();
    return places_.emplace(header.fields[0], header.bytes)->second.data();
  }
  void arrived(int, const MessageHeader& header) override {
    if (header.bytes == 0 || header.fields[1] == 1) return;
    const auto found = std::ranges::find_if(places_, [&](const auto& place) {
      return place.first == header.fields[0] && place.second.size() == header.bytes;
    });
    require(found != places_.end());
    places_.erase(found);
  }
  void ended(int, const Error&) override { require(!std::exchange(hasEnded_, true)); }

  static inline std::array<std::byte, kStaging> staging{};

 private:
  std::multimap<std::uint64_t, std::vector<std::byte>> places_;
  bool hasEnded_ = false;
};

class Rank {
 public:
  explicit Rank(int rank) {
    run([&] {
      ChannelSettings settings;
      settings.rank = rank;
      settings.peers = {1 - rank};
      settings.staging = Receiver::staging;
      const OpenVerbs open = [this](const ChannelSettings&, std::uint32_t) {
        return std::make_unique<Device>(device_);
      };
      channel_ = makeVerbsChannels(open, loop_, settings, receiver_).at(1 - rank);
    });
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    run([&] { channel_.reset(); });
  }

  std::string contact() const { return channel_->contact(); }
  std::string connect(const std::string& contact) {
    std::string answer;
    run([&] {
      answer = channel_->connect(contact);
      if (!answer.empty()) device_->signal();
    });
    return answer;
  }
  // Messages that the peer may ask for: one to be read, and one that goes in parts.
  void send() {
    run([&] {
      for (const std::uint64_t bytes : {kStaging, std::uint64_t{100}}) {
        const Message message{.header = {.kind = 1, .shortFields = {}, .fields = {}, .bytes = bytes},
                              .data = Receiver::staging.data()};
        channel_->send(std::span(&message, 1), [] {});
      }
    });
  }
  bool deliver(std::span<const std::byte> bytes) {
    if (device_ == nullptr || !device_->deliver(bytes)) return false;
    run([] {});
    return true;
  }

 private:
  void run(const Loop::Task& task) {
    loop_.post(task);
    while (loop_.runOnce(std::chrono::milliseconds(0))) continue;
  }

  Loop loop_;
  Receiver receiver_;
  Device* device_ = nullptr;
  std::shared_ptr<Channel> channel_;
};

// By the rank that it is for.
const std::string& goodContactFor(int rank) {
  static const std::string ofLower = Rank(0).contact();
  static const std::string ofHigher = Rank(1).connect(ofLower);
  return rank == 0 ? ofHigher : ofLower;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  auto input = std::as_bytes(std::span(data, size)).subspan(1);
  Rank rank(data[0] >> 1 & 1);
  if ((data[0] & 1) == 0) {
    if ((data[0] >> 2 & 1) == 1) rank.connect(goodContactFor(data[0] >> 1 & 1));
    rank.connect(std::string(reinterpret_cast<const char*>(input.data()), input.size()));
    return 0;
  }
  rank.connect(goodContactFor(data[0] >> 1 & 1));
  rank.send();
  while (input.size() >= 2) {
    const std::size_t wanted = std::to_integer<std::size_t>(input[0]) | std::to_integer<std::size_t>(input[1]) << 8;
    const std::size_t length = std::min({wanted, kSlotBytes, input.size() - 2});
    if (!rank.deliver(input.subspan(2, length))) break;
    input = input.subspan(2 + length);
  }
  return 0;
}
