// The shared state of the ranks of an emulated communicator: a file of shared memory with each rank's current call, a
// part of its data, and messages between two ranks. Each rank's own queue threads, one call at a time; any process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace emulated {

constexpr int kMostRanks = 16;
constexpr std::size_t kPartBytes = std::size_t{1} << 20;
constexpr std::size_t kLetterBytes = std::size_t{1} << 16;

struct CallFacts {
  std::int64_t kind = 0;
  std::int64_t count = 0;
  std::int64_t type = 0;
  std::int64_t operation = 0;
  std::int64_t root = 0;
  bool operator==(const CallFacts&) const = default;
};

// From one rank to another. Full from when `written` is ahead until the receiver has taken it.
struct Letter {
  std::atomic<std::uint64_t> written;
  std::atomic<std::uint64_t> taken;
  std::size_t bytes;
  std::byte data[kLetterBytes];
};

class SharedState {
 public:
  SharedState(const std::string& name, int rank, int ranks);
  ~SharedState();
  SharedState(const SharedState&) = delete;

  void remove() const;  // its name; it stays for those who have opened it
  // Waits until all have come so far. False where isOver() says so first. Calls and connections meet apart.
  bool meet(const std::function<bool()>& isOver) { return meet(head_->steps, isOver); }
  bool meetToConnect(const std::function<bool()>& isOver) { return meet(head_->connections, isOver); }
  bool await(const std::function<bool()>& until, const std::function<bool()>& isOver);
  void notify();
  bool hasAll() const { return static_cast<int>(head_->joined.load()) >= ranks_; }

  CallFacts& facts(int rank) { return head_->facts[rank]; }
  std::byte* part(int rank) const;
  Letter& letter(int from, int to) const;

 private:
  struct Head {
    std::atomic<std::uint32_t> joined;
    std::atomic<std::uint32_t> changes;  // waiters sleep on it
    std::atomic<std::uint64_t> steps[kMostRanks];
    std::atomic<std::uint64_t> connections[kMostRanks];
    CallFacts facts[kMostRanks];
  };

  bool meet(std::atomic<std::uint64_t>* steps, const std::function<bool()>& isOver);

  std::string name_;
  int rank_;
  int ranks_;
  std::size_t bytes_;
  Head* head_ = nullptr;
};

}  // namespace emulated
