// An exchange carries out the steps of one or more levels for slices in flight. One interface for what moves bytes by
// shared memory, by channels, and (later) by NCCL.
// On the loop only. Failures do not come back through a step: they end the whole group, through its Troubles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "exchange/portion.h"
#include "kernels/reduce.h"
#include "plan/layout.h"
#include "plan/planner.h"
#include "transport/traffic_class.h"

namespace fairring {

// How an exchange ends its group. Whatever is called stops the exchange before it returns.
struct Troubles {
  std::function<void(const Error&)> failed;
  std::function<void(int peer)> differs;  // the peer has made other calls than this rank
};

class SparseRows;

// A slice as the exchanges see it. Its memory is an image of the slice in staging, every element at its own place,
// followed by the areas that receive contributions. Its layout's elements are bytes.
struct Slice {
  std::uint64_t number = 0;     // in the order of the group's calls (traffic_class.h); the same on all ranks
  std::uint64_t signature = 0;  // of the call and all before it: equal on all ranks, or they made different calls
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<const Plan> plan;
  std::vector<Portion> portions;    // the tensors' elements in it; what lies between them means nothing
  double scale = 1.0;               // of this rank's floats, at level 0
  std::uint32_t refused = 0;        // a rank that refused the call, plus 1, as far as is known here; 0: none
  std::byte* image = nullptr;       // in this rank's staging
  std::uint64_t stagingOffset = 0;  // of the image within the staging
  std::uint64_t begin = 0;          // its first byte in the call
  std::shared_ptr<const SparseRows> rows = nullptr;  // who has which of a sparse call; null: all have all
  // Makes those of the tensors' elements that lie in a stretch of the call's bytes, for level 0, which has each made
  // before it reads any. Null: they are there.
  std::function<void(const Range& bytes)> prepare = nullptr;
  bool summedElsewhere = false;  // what the rails receive: a device sums it, they are done when it is there

  // What rounding has taken of its elements, which are all of Float32 and summed: they cross between sites as bf16
  // (site_compression.h). Null: as they are.
  float* residual = nullptr;

  std::uint64_t byteOffset(std::uint64_t element) const { return element * layout->elementBytes; }
  std::byte* at(const Range& range) const { return image + byteOffset(range.begin); }
  std::uint64_t bytes(const Range& range) const { return range.size() * layout->elementBytes; }
  void refuse(std::uint32_t by) { refused = refused == 0 || by == 0 ? std::max(refused, by) : std::min(refused, by); }
  // What the reducing step does to a portion: the divisor belongs to the last of them.
  Reduction reductionOf(const Portion& portion, std::size_t step) const;
};

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
  // True when slices with a number below the one of their class still need something from this rank.
  virtual bool needs(int peer, const ByTrafficClass<std::uint64_t>& slicesBelow) const = 0;
  bool needs(int peer) const;  // any slice
  // This peer has left in good order: whoever still needs something of it fails, now or later.
  virtual void leave(int peer) = 0;
  // No memory of any slice is touched after this, and no event comes any more.
  virtual void stop() = 0;
};

}  // namespace fairring
