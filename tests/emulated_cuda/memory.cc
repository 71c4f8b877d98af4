#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "report.h"

namespace emulated {
namespace {

constexpr std::size_t kGranule = 512;
constexpr std::size_t kPage = 4096;

std::size_t granules(std::size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

std::byte* map(std::size_t bytes, int protection, int flags, int file) {
  void* at = mmap(nullptr, bytes, protection, flags | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) fatal("%zu bytes of address space for a device's memory: none left", bytes);
  return static_cast<std::byte*>(at);
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes), free_{{0, bytes}} {
  const int file = memfd_create("emulated-cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) fatal("no file for a device's memory");
  emulator_ = map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file);
  program_ = map(bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  close(file);
}

bool DeviceMemory::covers(const void* address) const {
  return address >= program_ && address < static_cast<const void*>(program_ + bytes_);
}

std::size_t DeviceMemory::offset(const void* address) const {
  return static_cast<std::size_t>(static_cast<const std::byte*>(address) - program_);
}

std::byte* DeviceMemory::emulators(const void* address) const { return emulator_ + offset(address); }

void* DeviceMemory::allocate(std::size_t bytes) {
  const std::size_t whole = granules(bytes) + kGranule;
  const auto found = std::ranges::find_if(free_, [whole](const auto& range) { return range.second >= whole; });
  if (found == free_.end()) return nullptr;
  const auto [at, size] = *found;
  free_.erase(found);
  if (size > whole) free_[at + whole] = size - whole;
  used_[at] = bytes;
  taken_ += whole;
  std::memset(emulator_ + at, kPoison, bytes);
  return program_ + at;
}

bool DeviceMemory::free(void* address) {
  const auto found = used_.find(offset(address));
  if (found == used_.end()) return false;
  const std::size_t at = found->first;
  const std::size_t whole = granules(found->second) + kGranule;
  used_.erase(found);
  taken_ -= whole;
  const std::size_t firstPage = (at + kPage - 1) / kPage * kPage;
  const std::size_t endPage = (at + whole) / kPage * kPage;
  if (endPage > firstPage) madvise(emulator_ + firstPage, endPage - firstPage, MADV_REMOVE);
  merge(at, whole);
  return true;
}

void DeviceMemory::merge(std::size_t at, std::size_t bytes) {
  auto next = free_.lower_bound(at);
  if (next != free_.end() && next->first == at + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      before->second += bytes;
      return;
    }
  }
  free_[at] = bytes;
}

DeviceMemory::Allocation DeviceMemory::allocationAt(const void* address) const {
  auto found = used_.upper_bound(offset(address));
  if (found == used_.begin()) return {};
  --found;
  if (offset(address) >= found->first + found->second) return {};
  return {program_ + found->first, found->second};
}

}  // namespace emulated
