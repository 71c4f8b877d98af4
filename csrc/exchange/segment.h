// Memory that the ranks of a machine share: a file without a name (memfd), passed between processes by its descriptor,
// so it needs no room in /dev/shm and is gone with its last user. Pages count when they are first touched. Its size is
// sealed, so a peer can't shrink it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/descriptor.h"

namespace fairring {

class Segment {
 public:
  Segment() = default;
  // Throws Failure(System) with the size and the remedy.
  static Segment create(std::uint64_t bytes);
  // A peer's segment, of exactly this size; Failure(Connection) if it is anything else.
  static Segment attach(Descriptor memory, std::uint64_t bytes);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  int descriptor() const { return memory_.get(); }

 private:
  Segment(Descriptor memory, std::uint64_t bytes);

  Descriptor memory_;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace fairring
