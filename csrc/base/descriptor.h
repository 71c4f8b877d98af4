// A file descriptor that closes itself. One owner; move only.
// A forked child keeps none of them: they are closed there before fork() returns, because a connection that the child
// held open would hide its parent's death. Objects that the child inherits have no effect.
#pragma once

#include <unistd.h>  // for the owners' own calls

#include <utility>

namespace fairring {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd);
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() { Descriptor().swap(*this); }

 private:
  void swap(Descriptor& other) noexcept { std::swap(fd_, other.fd_); }
  int fd_ = -1;
};

}  // namespace fairring
