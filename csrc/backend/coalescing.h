// The calls between a group's startCoalescing and its endCoalescing, which together are one Work: over when all are,
// with the first error of theirs in the order of the calls. Each goes its own way at once; they are only waited for
// together. Those that are NCCL's it launches together itself.
// Any thread.
#pragma once

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

  void start();  // throws ValueError where it has been started
  // A call of the group's, or a stock backend that will carry one out and coalesces by itself. Nothing where no
  // coalescing has been started.
  void add(const WorkPtr& work);
  void add(const BackendPtr& stock);
  // Whether there is one, which has begun: until the end, what the thread asks of NCCL belongs to a group of NCCL's.
  bool hasStock() const;
  WorkPtr end();  // null where there were no calls; throws ValueError where it has not been started

 private:
  struct Calls {
    std::vector<WorkPtr> works;
    std::set<BackendPtr> stocks;
  };

  mutable std::mutex mutex_;  // guards what is below
  std::optional<Calls> calls_;
};

}  // namespace fairring
