// The memory of a device: one range of addresses that the program is given and can't touch, and a second mapping of the
// same bytes that only the emulator uses. Whoever holds the devices' mutex (device.h) may call it; ranges are fixed.
//
// Between two allocations lie bytes that nobody owns, so that what reaches beyond its own is noticed.
#pragma once

#include <cstddef>
#include <map>

namespace emulated {

constexpr unsigned char kPoison = 0xAB;  // what memory holds from the beginning of a write to its end, and when new

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;

  bool covers(const void* address) const;
  // Where the emulator finds it. Of an address that is covered.
  std::byte* emulators(const void* address) const;

  void* allocate(std::size_t bytes);  // null where there is no room
  bool free(void* address);
  struct Allocation {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
  };
  Allocation allocationAt(const void* address) const;  // of no bytes where there is none
  std::size_t freeBytes() const { return bytes_ - taken_; }

 private:
  std::size_t offset(const void* address) const;
  void merge(std::size_t at, std::size_t bytes);

  std::size_t bytes_;
  std::size_t taken_ = 0;
  std::byte* program_ = nullptr;
  std::byte* emulator_ = nullptr;
  std::map<std::size_t, std::size_t> free_;  // from offset to bytes
  std::map<std::size_t, std::size_t> used_;
};

}  // namespace emulated
