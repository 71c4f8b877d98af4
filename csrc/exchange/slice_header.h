// The messages that carry slices between two ranks, and those by which the ranks tell each other that there is memory
// for them (rails.h): a MessageHeader as this protocol reads it. A value; any thread.
#pragma once

#include <cstdint>

#include "transport/channel.h"

namespace fairring {

struct SliceHeader {  // on the wire in this order
  enum class Kind : std::uint16_t {
    Data = 1,           // bytes of a rail
    Grant = 2,          // the sender has memory ready for all messages of that slice and step
    CreditRequest = 3,  // the sender has this slice, and holds back small messages until the peer has it
    CreditUpdate = 4,   // the sender has this slice; the answer to CreditRequest
  };

  Kind kind = Kind::Data;
  std::uint16_t step = 0;       // index into the plan
  std::uint32_t refused = 0;    // a rank that refused the call, plus 1, as far as the sender knows; 0: none
  std::uint64_t slice = 0;      // the slice of the group (slice_id.h)
  std::uint64_t rail = 0;       // first element of the rail, within the slice
  std::uint64_t bytes = 0;      // number of bytes that follow; only data has any
  std::uint64_t signature = 0;  // of the call: ranks that make different calls learn it here

  bool isKnown() const { return kind >= Kind::Data && kind <= Kind::CreditUpdate; }
};

}  // namespace fairring
