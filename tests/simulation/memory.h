// Memory that runs out: what a rank's loops allocate is counted, and one of these allocations fails. The test's own
// code, which runs on the same loops, gets what it asks for. For the whole program; one thread.
#pragma once

#include <cstdint>

namespace fairring::testing {

// While it is there, each allocation counts *left down, and the one that finds 1 there throws std::bad_alloc.
class ScarceMemory {
 public:
  explicit ScarceMemory(std::uint64_t* left);  // 0: none fails
  ~ScarceMemory();
  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;

 private:
  std::uint64_t* const before_;
};

// While it is there, nothing fails, nor is counted.
class AmpleMemory : private ScarceMemory {
 public:
  AmpleMemory() : ScarceMemory(nullptr) {}
};

}  // namespace fairring::testing
