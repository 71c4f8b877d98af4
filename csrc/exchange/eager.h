// Small messages travel without asking first. The sender keeps to a credit per peer: bytes that may wait in the peer's
// memory before it has made their call. The receiver keeps such messages aside until their place is free. The credit
// needs no messages of its own: any message about a slice shows that the peer has admitted all slices up to that one,
// so messages sent for these slices occupy no credit any more.
//
// Only if the credit does not suffice, the sender asks and waits: the peer answers once it has the slice.
// On the loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "exchange/slice_header.h"

namespace fairring {

struct EagerLimits {
  std::uint64_t messageBytes = 64 << 10;  // to one peer in one step, at most; more needs a grant
  std::uint64_t creditBytes = 256 << 10;  // per peer
};

class EagerCredit {  // one peer's, for the slices of one queue, as seen by the sender
 public:
  // Whether that many bytes for a slice may go now; if so, they count as sent.
  bool take(std::uint64_t slice, std::uint64_t bytes, const EagerLimits& limits);
  // The peer has admitted this slice, and so all slices before it.
  void heard(std::uint64_t slice);
  bool hasAdmitted(std::uint64_t slice) const { return slice < admitted_; }

 private:
  std::uint64_t admitted_ = 0;  // slices below
  std::uint64_t outstanding_ = 0;
  std::map<std::uint64_t, std::uint64_t> bytes_;  // outstanding ones, by slice
};

class UnexpectedMessages {  // messages that came before their place was free
 public:
  struct Unexpected {
    SliceHeader header;
    std::vector<std::byte> bytes;
    bool here = false;
  };

  explicit UnexpectedMessages(EagerLimits limits) : limits_(limits) {}

  // Memory for a message; null if the message is there already, or the peer exceeds its credit.
  std::byte* place(int peer, const SliceHeader& header);
  // False if the message is none of these.
  bool arrived(int peer, const SliceHeader& header);
  bool empty() const { return messages_.empty(); }
  // Removes and returns the complete messages for a step of a slice (as its headers name it), by peer.
  std::vector<std::pair<int, Unexpected>> take(std::uint64_t slice, std::size_t step);

 private:
  struct Key {
    std::uint64_t slice;
    std::size_t step;
    int peer;
    std::uint64_t rail;
    auto operator<=>(const Key&) const = default;
  };
  const EagerLimits limits_;
  std::map<Key, Unexpected> messages_;
  std::map<int, std::uint64_t> bytes_;  // by peer
};

}  // namespace fairring
