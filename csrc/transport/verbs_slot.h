// The bytes of the messages between two verbs channels: a slot, of kSlotBytes at most, is a beginning and records, some
// of them followed by bytes. Little endian, as they lie in memory. Any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "transport/channel.h"

namespace fairring {

static_assert(std::endian::native == std::endian::little, "slots travel as they lie in memory, little endian");

struct SlotBeginning {
  std::uint32_t credits = 0;  // slots of the receiver that are free again
  std::uint32_t version = 1;
};

struct SlotRecord {
  enum class Kind : std::uint16_t {
    Hello = 1,  // the queue pair works; `bytes` of zeros follow, which fill the slot
    Agreed,     // so it does both ways; the lower of the two ranks says it; zeros follow as well
    Part,       // of a message: `bytes` of it follow, which begin at `place` in it
    Announced,  // a message that its receiver should read, at the address `place`, by the key `bytes`
    Wanted,     // its bytes, in parts: the receiver can't read to where they go
    Read,       // it has been read
    End,        // no record follows; `bytes` of text do, if it ends by an error
  };

  Kind kind = Kind::Hello;
  TrafficClass trafficClass = TrafficClass::Bulk;
  std::uint32_t number = 0;  // of the message, by its sender
  MessageHeader message;
  std::uint64_t place = 0;
  std::uint32_t bytes = 0;
  std::uint32_t filler = 0;
};
static_assert(sizeof(SlotBeginning) == 8 && sizeof(SlotRecord) == 64);

// Records begin at multiples of this.
constexpr std::size_t kSlotGrain = 8;
// Two packets of RoCE, if its frames are large; of any fabric, at least one of full size.
constexpr std::size_t kSlotBytes = 8 << 10;
constexpr std::size_t kPartBytes = kSlotBytes - sizeof(SlotBeginning) - sizeof(SlotRecord);  // the longest part

}  // namespace fairring
