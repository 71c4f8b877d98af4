// Memory that the ranks of a machine share: a file without a name (memfd), passed between processes by its descriptor,
// so it needs no room in /dev/shm and is gone with its last user. Pages count when they are first touched. Its size is
// sealed, so a peer can't shrink it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/descriptor.h"

namespace fairring {

class Segment {
 public:
  Segment() = default;
  // Throws Failure(System) with the size and the remedy.
  static Segment create(std::uint64_t bytes);
  // A peer's segment, of exactly this size; Failure(Connection) if it is anything else.
  static Segment attach(Descriptor memory, std::uint64_t bytes);

  std::byte* data() const { return data_.get(); }
  std::uint64_t bytes() const { return data_.get_deleter().bytes; }
  int descriptor() const { return memory_.get(); }

 private:
  Segment(Descriptor memory, std::uint64_t bytes);

  struct Unmap {
    std::uint64_t bytes;
    void operator()(std::byte* data) const noexcept;
  };

  Descriptor memory_;
  std::unique_ptr<std::byte, Unmap> data_;
};

}  // namespace fairring
