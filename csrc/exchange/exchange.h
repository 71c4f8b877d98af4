// An exchange carries out the steps of one or more levels for slices in flight. One interface for what moves bytes by
// shared memory, by channels, and (later) by NCCL.
// On the loop only. Failures do not come back through a step: they end the whole group, through its Troubles.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>

#include "base/error.h"
#include "exchange/slice.h"

namespace fairring {

// How an exchange ends its group. Whatever is called stops the exchange before it returns.
struct Troubles {
  std::function<void(const Error&)> failed;
  std::function<void(int peer)> differs;  // the peer has made other calls than this rank
};

// The error of both exchanges if a peer has left. rank: this one.
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
  // True when some of these slices still need something from this rank, which may be its acknowledgement.
  virtual bool needs(int peer, const Watermarks& slicesBelow) const = 0;
  bool needs(int peer) const;  // any slice
  // This peer has left in good order: whoever still needs something of it fails, now or later.
  virtual void leave(int peer) = 0;
  // No memory of any slice is touched after this, and no event comes any more.
  virtual void stop() = 0;
};

}  // namespace fairring
