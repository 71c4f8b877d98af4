// The bytes that one peer and this rank exchange on one rail, in one step of a slice. Value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fairring {

struct Transfer {
  int peer;
  std::uint64_t rail;  // its first element
  const std::byte* sendFrom;
  std::uint64_t sendBytes;
  std::uint64_t receiveBytes;
  std::byte* receiveAt;
  bool placed = false;
  bool here = false;
  std::int64_t placedAt = 0;  // as Recorder::now() has it

  bool isMissing() const { return receiveBytes > 0 && !here; }
};

}  // namespace fairring
