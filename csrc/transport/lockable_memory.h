// The memory that this process may still lock for RDMA, and the promises of it. A group asks whether there is enough
// when it is made, and locks it when it makes its channels, at its first use (TensorPipe's ibv: while they connect). In
// between a promise keeps other groups from counting on the same bytes. Any thread: groups are made on callers'
// threads, and give promises back on the loop. The mutex is held while promises are counted, and never while anything
// waits.
//
// fork() takes the mutex of this process's memory. The child has locked nothing and promised nothing: the promises that
// it inherits are its parent's, and mean nothing there.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace fairring {

class LockableMemory {
 public:
  // How much the system still lets this process lock; none: no limit.
  using Unlocked = std::function<std::optional<std::uint64_t>()>;

  struct Left {
    std::optional<std::uint64_t> bytes;  // neither locked nor promised; none: no limit
    std::uint64_t promised = 0;
  };

  // Of some bytes, until it ends or is given back. The memory outlives it.
  class Promise {
   public:
    Promise() = default;
    Promise(const Promise&) = delete;
    Promise& operator=(const Promise&) = delete;
    Promise(Promise&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_), epoch_(other.epoch_) {}
    Promise& operator=(Promise&& other) noexcept;
    ~Promise() { giveBack(); }

    void giveBack() noexcept;  // the bytes are locked, and count by that, or will not be

   private:
    friend class LockableMemory;
    Promise(LockableMemory& memory, std::uint64_t bytes, std::uint64_t epoch)
        : memory_(&memory), bytes_(bytes), epoch_(epoch) {}

    LockableMemory* memory_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::uint64_t epoch_ = 0;  // in which it was made
  };

  explicit LockableMemory(Unlocked unlocked) : unlocked_(std::move(unlocked)) {}
  LockableMemory(const LockableMemory&) = delete;
  LockableMemory& operator=(const LockableMemory&) = delete;
  static LockableMemory& ofThisProcess();

  Left left() const;
  // `use` says in words for what. Throws Failure(Configuration) with obstacle()'s words if there are not so many.
  Promise promise(std::uint64_t bytes, const std::string& use);
  // Why so many bytes can't be locked, and the remedy; empty if they can.
  static std::string obstacle(const Left& left, std::uint64_t bytes, const std::string& use);

 private:
  struct Weighed {
    std::unique_lock<std::mutex> lock;  // of mutex_
    Left left;
  };

  static LockableMemory* madeForForks();
  Weighed weigh() const;

  const Unlocked unlocked_;
  mutable std::mutex mutex_;  // guards all below
  std::uint64_t promised_ = 0;
  std::uint64_t givenBack_ = 0;  // promises
  std::uint64_t epoch_ = 0;      // a forked child's is its parent's and one more
};

}  // namespace fairring
