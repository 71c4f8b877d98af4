// One port of an RDMA device, as the channels see it: memory that is registered, reliable queue pairs, and one queue of
// completions for all of them. verbs_hardware.h implements it on libibverbs; tests simulate it.
//
// Completions of one queue pair come in the order of its requests, for sends and receives apart; those of several queue
// pairs come in any order. A queue pair that breaks gives all its requests back, with an error. On the loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace fairring {

struct RegisteredMemory {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint32_t localKey = 0;
  std::uint32_t remoteKey = 0;  // by which a connected queue pair may read it, if it was registered for that

  bool contains(const std::byte* first, std::uint64_t count) const {
    return first >= data && first < data + bytes && count <= static_cast<std::uint64_t>(data + bytes - first);
  }
};

// Of the peer to memory, and by a queue pair: it may read if both allow it, and may write nowhere.
enum class PeerAccess : std::uint8_t { None, Read };

// A port, as its peers have to know it.
struct VerbsAddress {
  std::string gid;  // 16 bytes
  std::uint16_t lid = 0;
  std::uint32_t mtu = 0;  // as verbs number them: 1 is 256 bytes, 5 is 4096
  std::string fabric;     // for messages

  static void fields(auto& row, auto& address) {
    row(address.gid, address.lid, address.mtu, address.fabric);
    row.require(address.gid.size() == 16 && address.mtu >= 1 && address.mtu <= 5);
  }
};

struct QueuePairName {
  std::uint32_t number = 0;
  std::uint32_t firstPacket = 0;

  static void fields(auto& row, auto& name) { row(name.number, name.firstPacket); }
};

struct VerbsCompletion {
  enum class Kind : std::uint8_t { Receive, Send, Read };

  std::uint32_t queuePair = 0;
  Kind kind = Kind::Receive;
  std::uint32_t index = 0;   // as the request had it
  std::uint32_t bytes = 0;   // of a receive
  std::uint32_t status = 0;  // 0: it went well
  std::uint32_t vendorError = 0;
};

// By its status, as verbs number them: whether a request may have failed only because the path, or the other end of the
// queue pair, is gone. Then another queue pair may carry it. A flushed one says nothing of the cause.
constexpr bool isOfPath(std::uint32_t status) {
  constexpr std::uint32_t kFlushed = 5;
  constexpr std::uint32_t kRetriesExceeded = 12;
  constexpr std::uint32_t kReceiverNotReady = 13;
  constexpr std::uint32_t kAbortedByPeer = 16;
  return status == kFlushed || status == kRetriesExceeded || status == kReceiverNotReady || status == kAbortedByPeer;
}

// What a device reports of itself, beside completions.
struct VerbsAsyncEvent {
  enum class Kind : std::uint8_t {
    PortChanged,      // down, up, another address: connections may live through it
    QueuePairFailed,  // one of them, for good
    DeviceFailed,     // the device, its completions, or the address by which peers reach it, for good
  };

  Kind kind = Kind::PortChanged;
  std::uint32_t queuePair = 0;
  std::string text;  // in the library's words
};

// How many reads of a queue pair are under way at once, here and at its peer.
constexpr std::uint8_t kReadsAtOnce = 4;

// Requests throw Failure(Connection) if the device refuses them.
class VerbsQueuePair {
 public:
  virtual ~VerbsQueuePair() = default;  // after it, the device touches no memory for this queue pair any more
  virtual QueuePairName name() const = 0;
  virtual void connect(const VerbsAddress& peer, const QueuePairName& name) = 0;
  virtual void receive(std::uint32_t index, std::span<std::byte> into, std::uint32_t localKey) = 0;
  virtual void send(std::uint32_t index, std::span<const std::byte> from, std::uint32_t localKey) = 0;
  virtual void read(std::span<std::byte> into, std::uint32_t localKey, std::uint64_t address,
                    std::uint32_t remoteKey) = 0;
};

struct QueueDepths {
  std::uint32_t receives = 0;
  std::uint32_t sends = 0;  // reads among them
};

class VerbsDevice {
 public:
  virtual ~VerbsDevice() = default;  // after its queue pairs
  virtual VerbsAddress address() const = 0;
  virtual std::string name() const = 0;     // for messages: "mlx5_0, port 1"
  virtual std::string trouble() const = 0;  // what keeps it from working at present, as far as the system tells
  // Until the device ends, or it is released. Throws Failure(Configuration) if the memory can't be registered.
  virtual RegisteredMemory registerMemory(std::span<std::byte> memory, PeerAccess access) = 0;
  virtual void release(const RegisteredMemory& memory) = 0;
  // Throws Failure(Configuration) if so much more can't be locked beside what groups were promised. `use` says in words
  // for what.
  virtual void expectLockable(std::uint64_t bytes, const std::string& use) const = 0;
  virtual std::unique_ptr<VerbsQueuePair> makeQueuePair(QueueDepths depths, PeerAccess access) = 0;

  // How many there were. Throws Failure(Connection) if the device tells no more.
  virtual std::size_t poll(std::span<VerbsCompletion> into) = 0;
  // The descriptor becomes readable once, with the next completion after arm().
  virtual int descriptor() const = 0;
  virtual void arm() = 0;
  virtual void takeEvents() = 0;                               // what made it readable
  virtual std::string textOf(std::uint32_t status) const = 0;  // in the library's words
  // Readable while there is an asynchronous event to take.
  virtual int asyncDescriptor() const = 0;
  virtual std::optional<VerbsAsyncEvent> takeAsyncEvent() = 0;
};

}  // namespace fairring
