#include "exchange/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/error.h"

namespace fairring {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

Segment Segment::create(std::uint64_t bytes) {
  Descriptor memory(::memfd_create("fairring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) {
    throw Failure(makeError(ErrorKind::System, "no shared memory of ", bytes, " bytes: ", systemError("memfd").text(),
                            "; a smaller FAIRRING_TOTAL_MEMORY may help"));
  }
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) throw Failure(systemError("F_ADD_SEALS"));
  return {std::move(memory), bytes};
}

Segment Segment::attach(Descriptor memory, std::uint64_t bytes) {
  struct stat facts{};
  const int seals = ::fcntl(memory.get(), F_GET_SEALS);  // -1 for a file that can't be sealed
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  check(sealed && ::fstat(memory.get(), &facts) == 0 && static_cast<std::uint64_t>(facts.st_size) == bytes,
        ErrorKind::Connection, "a peer's shared memory has ", facts.st_size, " bytes (sealed: ", sealed,
        "), expected are ", bytes);
  return {std::move(memory), bytes};
}

Segment::Segment(Descriptor memory, std::uint64_t bytes) : memory_(std::move(memory)) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (mapped == MAP_FAILED) throw Failure(systemError("mmap"));
  data_ = {static_cast<std::byte*>(mapped), Unmap{bytes}};
}

void Segment::Unmap::operator()(std::byte* data) const noexcept { ::munmap(data, bytes); }

}  // namespace fairring
