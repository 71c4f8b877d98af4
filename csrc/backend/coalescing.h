// The calls between a group's startCoalescing and its endCoalescing, which together are one Work: it ends when all of
// them have ended, with their first error in the order of the calls. Each call starts at once; they are only waited for
// together. NCCL launches its own calls together itself.
// Any thread.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace fairring {

class Coalescing {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

  // Ends an earlier coalescing: torch leaves it open if an exception ends its block.
  void start();
  // A call of the group's, or a stock backend that will carry one out and coalesces by itself. No effect if no
  // coalescing has been started.
  void add(const WorkPtr& work);
  void add(const BackendPtr& stock);
  bool isOpen() const;  // coalescing has begun
  // And for NCCL: until its end, this thread's calls to NCCL belong to one group of NCCL's.
  bool hasStock() const;
  // Of an open coalescing: leaves these stock backends' calls unmade. Whether there are such.
  bool forget(const std::function<bool(const BackendPtr&)>& isOne);
  WorkPtr end();  // null if there were no calls; throws ValueError if it has not been started

 private:
  struct Calls {
    std::vector<WorkPtr> works;
    std::set<BackendPtr> stocks;
  };

  mutable std::mutex mutex_;  // guards the members below
  std::optional<Calls> calls_;
};

}  // namespace fairring
