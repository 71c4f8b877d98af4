// An exchange carries out the steps of one or more levels for slices in flight. One interface for what moves bytes by
// shared memory, by pipes, and (later) by NCCL.
// On the loop only. Failures do not come back through a step: they end the whole group, through its Troubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/error.h"
#include "kernels/reduce.h"
#include "plan/layout.h"
#include "plan/planner.h"

namespace fairring {

// How an exchange ends its group. Whatever is called stops the exchange before it returns.
struct Troubles {
  std::function<void(const Error&)> failed;
  std::function<void(int peer)> differs;  // the peer has made other calls than this rank
};

// A slice as the exchanges see it. Its memory is an image of the slice in staging, every element at its own place,
// followed by the areas that receive contributions.
struct Slice {
  std::uint64_t number = 0;     // in the order of the group's calls, from 0; the same on all ranks
  std::uint64_t signature = 0;  // of the call and all before it: equal on all ranks, or they made different calls
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<const Plan> plan;
  Reduction reduction;              // of the whole call
  double scale = 1.0;               // of this rank's elements, at level 0
  std::byte* user = nullptr;        // this rank's tensor, from the slice's first element on
  std::byte* image = nullptr;       // in this rank's staging
  std::uint64_t stagingOffset = 0;  // of the image within the staging

  std::uint64_t byteOffset(std::uint64_t element) const { return element * layout->elementBytes; }
  std::uint64_t bytes(const Range& range) const { return range.size() * layout->elementBytes; }
  // What the reducing step does: the divisor belongs to the last of them.
  Reduction reductionOf(std::size_t step) const;
};

bool reduces(Verb verb);

// What two exchanges have to say alike. rank: this one.
Error hasLeft(int rank, int peer);

class Exchange {
 public:
  struct Events {
    std::function<void()> ready;     // the step's result is there: the slice may go on
    std::function<void()> released;  // after ready: nobody, here or elsewhere, touches the slice's memory for this step
  };

  virtual ~Exchange() = default;
  // The slice has its staging: memory for it may be promised.
  virtual void admit(const std::shared_ptr<Slice>& slice) = 0;
  // Starts a step. The events may come from within.
  virtual void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) = 0;
  // Ranks from whom something is missing for the slices that have started.
  virtual std::set<int> missing() const = 0;
  // True when slices with a smaller number still need something from this rank.
  virtual bool needs(int peer, std::uint64_t slicesBelow) const = 0;
  // This peer has left in good order: whoever still needs something of it fails, now or later.
  virtual void leave(int peer) = 0;
  // No memory of any slice is touched after this, and no event comes any more.
  virtual void stop() = 0;
};

}  // namespace fairring
