// The messages between two ranks on a message channel (point_to_point.h): a MessageHeader as this protocol reads it.
// A value; any thread.
#pragma once

#include <cstdint>

#include "transport/channel.h"

namespace fairring {

struct PointToPointHeader {  // on the wire in this order
  enum class Kind : std::uint16_t {
    Data = 1,          // bytes of a message that has been granted
    Grant = 2,         // a receive has memory for the announced message
    CreditUpdate = 4,  // only gives credit back, as all kinds do
    Eager = 5,         // bytes of a message that was not announced
    Announcement = 6,  // a message waits for a grant
    Refusal = 7,       // the announced message does not fit its receive
  };

  Kind kind = Kind::Data;
  std::uint16_t context = 0;
  std::uint32_t tag = 0;
  std::uint64_t number = 0;  // of the message, counted from its sender to its receiver
  std::uint64_t size = 0;    // of the announced message, or of the receive that refuses it
  std::uint64_t bytes = 0;   // number of bytes that follow
  std::uint64_t taken = 0;   // bytes of eager messages that the sender has received so far, with their overhead
};

}  // namespace fairring
