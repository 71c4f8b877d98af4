#include "memory.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace fairring::testing {

namespace {

thread_local std::uint64_t* current = nullptr;

void* allocated(std::size_t bytes, std::size_t alignment) {
  if (current != nullptr && *current > 0) {
    --*current;
    if (*current == 0) throw std::bad_alloc();
  }
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  if (void* const memory = std::aligned_alloc(alignment, whole > 0 ? whole : alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

ScarceMemory::ScarceMemory(std::uint64_t* left) : before_(std::exchange(current, left)) {}
ScarceMemory::~ScarceMemory() { current = before_; }

}  // namespace fairring::testing

void* operator new(std::size_t bytes) { return fairring::testing::allocated(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return fairring::testing::allocated(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
