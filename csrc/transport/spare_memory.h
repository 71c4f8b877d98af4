// The memory of finished copies, kept for the next ones of any peer: fresh memory must be mapped and cleared page by
// page, which takes longer than the copy. On the loop only.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

namespace fairring {

class SpareMemory {
 public:
  static constexpr std::size_t kMostBytes = 8 << 20;  // the most that is kept

  std::vector<std::byte> copyOf(std::span<const std::byte> bytes);
  void keep(std::vector<std::byte>&& copy);

 private:
  std::multimap<std::size_t, std::vector<std::byte>> spare_;  // by capacity
  std::size_t bytes_ = 0;                                     // of all of it
};

}  // namespace fairring
