// A channel carries messages between this rank and one peer. This is the interface between the algorithms (rails.h,
// point_to_point.h) and the networks. TCP (tcp_channel.h), verbs (verbs_channel.h) and TensorPipe
// (tensorpipe_channel.h) implement it, and one conformance test covers all.
//
// A message is a header and the bytes that it announces. The channel asks the receiver for the place of each message by
// its header, and tells it when the message is there. Flow control stands above: a message is only sent into memory
// that its receiver has promised, so `place` always has an answer. Between two ranks messages arrive whole, in any
// order. Everything here runs on the loop.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/error.h"
#include "transport/stream.h"
#include "transport/traffic_class.h"

namespace fairring {

// A channel reads the kind and the number of bytes. The other fields belong to the protocol above, which has a header
// of its own with the same layout (exchange/slice_header.h, exchange/point_to_point_header.h).
struct MessageHeader {     // 40 bytes on the wire, little endian, in this order
  std::uint16_t kind = 0;  // 0 and 65535 are the channel's own (chunk.h)
  std::array<std::uint16_t, 3> shortFields{};
  std::array<std::uint64_t, 2> fields{};
  std::uint64_t bytes = 0;  // number of bytes that follow
  std::uint64_t lastField = 0;

  bool operator==(const MessageHeader&) const = default;
};
static_assert(sizeof(MessageHeader) == 40);

template <class Header>
MessageHeader onWire(const Header& header) {
  static_assert(offsetof(Header, kind) == 0 && offsetof(Header, bytes) == offsetof(MessageHeader, bytes));
  return std::bit_cast<MessageHeader>(header);
}

struct Message {
  MessageHeader header;
  const std::byte* data = nullptr;  // header.bytes of them; the caller's until released
  TrafficClass trafficClass = TrafficClass::Bulk;
};

class MessageReceiver {
 public:
  virtual ~MessageReceiver() = default;
  // The place for the bytes of this message; only asked if there are any. Null refuses the message and ends the
  // channel: the receiver has then already reported why.
  virtual std::byte* place(int peer, const MessageHeader& header) = 0;
  // All bytes of the message are in place.
  virtual void arrived(int peer, const MessageHeader& header) = 0;
  // The channel to this peer has ended: by the error, or, if the error is empty, because the peer closed it in good
  // order. Called at most once per peer, and never after close().
  virtual void ended(int peer, const Error& error) = 0;
};

// TCP packets that have gone to a peer, and how many of them were retransmitted.
struct Packets {
  std::uint64_t sent = 0;
  std::uint64_t again = 0;
};

class Channel {
 public:
  using Released = std::function<void()>;
  virtual ~Channel() = default;

  // Sends the messages as one batch. `released` is called when their memory may be written again; never within send(),
  // and not at all once the channel has ended. Ignored once it has.
  virtual void send(std::span<const Message> messages, Released released) = 0;
  // Payload and header bytes that have come from the peer so far: a sign of life.
  virtual std::uint64_t bytesSeen() const = 0;
  // How many sends have gone out, also once the channel has ended. One send takes all messages that wait, as far as
  // there is room.
  virtual std::uint64_t sends() const = 0;
  // Summed over the open connections; none if the network does not count packets.
  virtual Packets packets() const { return {}; }
  // Ends the channel at once. After it returns, no memory of any message is touched any more and nothing is called
  // back. Not from within the receiver's place() or arrived(), nor from `released`. The channels of one transport that
  // share threads of its own end together.
  virtual void close() = 0;
  virtual bool hasEnded() const = 0;
  // Beside staging (ChannelSettings), memory that large messages are sent from and received into, until the channels
  // are closed. Throws Failure(Configuration) if it can't be used so: then its messages take longer.
  virtual void addStaging(std::span<std::byte> /*memory*/) {}
  // The peer will not come back: a connection that breaks from now on stays broken.
  virtual void peerLeaves() {}

  // A channel gets its connections in one of two ways. By lanes, which the connector brings:
  virtual void add(std::uint32_t /*lane*/, Stream /*stream*/) {}  // replaces an earlier one with the same index
  // Or by a contact, which the lower of two ranks sends over the control connection, and to which the higher connects.
  // It may answer by a contact of its own, to which the lower connects. Others follow if a connection breaks
  // (Relinking::sendContact).
  virtual std::string contact() const { return {}; }                          // empty: there is none to send
  virtual std::string connect(const std::string& /*contact*/) { return {}; }  // the answer; empty: none
  // Whether it has been connected and proven. One that gets lanes does not wait for them.
  virtual bool isOpen() const { return true; }
};

}  // namespace fairring
