// Channels: how messages of slices get from one rank to another. The seam between what knows algorithms (rails.h) and
// what knows a network; TCP (tcp_channels.h) and TensorPipe (tensorpipe_channels.h) stand behind it, and one
// conformance test holds for both.
//
// A message is a header and the bytes that it announces. The receiver is asked for the place of each message by its
// header and told when all of it is there. Flow control stands above: a message is only sent into memory that its
// receiver has promised, so `place` always has an answer. Between two ranks messages arrive whole and in any order.
// Everything here runs on the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/error.h"
#include "transport/traffic_class.h"

namespace fairring {

enum class MessageKind : std::uint16_t {
  Data = 1,           // bytes of a rail
  Grant = 2,          // no bytes: the sender of this header has memory ready for all messages of that slice and step
  CreditRequest = 3,  // no bytes: the sender has this slice, and holds back small messages until the peer has it
  CreditUpdate = 4,   // no bytes: the sender has this slice; the answer to CreditRequest
  // Between two ranks alone (exchange/point_to_point.h); their bytes follow as Data once they are granted.
  Eager = 5,         // bytes of a message that was not announced
  Announcement = 6,  // no bytes: a message waits for a grant
  Refusal = 7,       // no bytes: an announced message does not fit its receive
};

inline bool isKnown(MessageKind kind) { return kind >= MessageKind::Data && kind <= MessageKind::Refusal; }

struct MessageHeader {  // 40 bytes on the wire, little endian, in this order
  MessageKind kind = MessageKind::Data;
  std::uint16_t step = 0;       // index into the plan
  std::uint32_t refused = 0;    // a rank that refused the call, plus 1, as far as the sender knows; 0: none
  std::uint64_t slice = 0;      // which slice of the group (exchange/slice_id.h)
  std::uint64_t rail = 0;       // first element of the rail, within the slice
  std::uint64_t bytes = 0;      // that follow
  std::uint64_t signature = 0;  // of the call: ranks that differ learn it here

  bool operator==(const MessageHeader&) const = default;
};
static_assert(sizeof(MessageHeader) == 40);

struct Message {
  MessageHeader header;
  const std::byte* data = nullptr;  // header.bytes of them; the caller's until released
  TrafficClass trafficClass = TrafficClass::Bulk;
};

class MessageReceiver {
 public:
  virtual ~MessageReceiver() = default;
  // Where the bytes of this message belong; only asked when there are any. Null refuses the message and ends the
  // channel: the receiver has then already reported why.
  virtual std::byte* place(int peer, const MessageHeader& header) = 0;
  // All bytes of the message are in place.
  virtual void arrived(int peer, const MessageHeader& header) = 0;
  // The channel to this peer ended: by the error, or, where the error is empty, because the peer closed it in good
  // order. Called at most once per peer, and never after close().
  virtual void ended(int peer, const Error& error) = 0;
};

// Packets of TCP that have gone to a peer, and those of them that were lost, or thought to be, and went again.
struct Packets {
  std::uint64_t sent = 0;
  std::uint64_t again = 0;
};

class Channels {
 public:
  using Released = std::function<void()>;
  virtual ~Channels() = default;

  // Sends the messages as one batch. `released` is called when their memory may be written again; never within send(),
  // and not at all once the channel has ended.
  virtual void send(int peer, std::span<const Message> messages, Released released) = 0;
  // Payload and header bytes that have come from this peer so far: a sign of life.
  virtual std::uint64_t bytesSeen(int peer) const = 0;
  // How often messages have gone out to this peer, before its channel ended too: one time takes all that waits for it,
  // as far as there is room.
  virtual std::uint64_t sends(int peer) const = 0;
  // Over the connections that stand; none where the network does not tell.
  virtual Packets packets(int) const { return {}; }
  // Ends all channels at once. When it returns, no memory of any message is touched any more and nothing is called
  // back.
  virtual void close() = 0;
};

}  // namespace fairring
