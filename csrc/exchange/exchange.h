// An exchange carries out the steps of one or more levels for slices in flight: one interface for shared memory,
// channels, and devices. On the loop only. Failures do not come back through a step: they end the whole group, through
// its Troubles.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "exchange/slice.h"

namespace fairring {

// How an exchange ends its group. It goes on meanwhile, with all but what the trouble is about: none of these may stop
// the exchange, or anything else that may be in a call. The group posts that to its loop.
struct Troubles {
  std::function<void(const Error&)> failed;
  std::function<void(int peer)> differs;  // the peer has made different calls than this rank
  std::function<void(int peer)> left;     // the peer has left, and slices need something from it
};

class Exchange {
 public:
  struct Events {
    std::function<void()> ready;     // the step's result is there: the slice may go on
    std::function<void()> released;  // after ready: no rank touches the slice's memory for this step any more
  };

  explicit Exchange(Troubles troubles = {}) : troubles_(std::move(troubles)) {}
  virtual ~Exchange() = default;
  // The slice has its staging: memory for it may be promised.
  virtual void admit(const std::shared_ptr<Slice>& slice) = 0;
  // Starts a step. The events may be called from within.
  virtual void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) = 0;
  // Ranks that have yet to send something for the slices that have started.
  virtual std::set<int> missing() const = 0;
  // True if some of these slices still need something from this rank, possibly its acknowledgement.
  virtual bool needs(int peer, const Watermarks& slicesBelow) const = 0;
  bool needs(int peer) const;  // any slice
  // This peer has left in good order: slices that still need something from it fail, now or later.
  void leave(int peer);
  // Afterwards no memory of any slice is touched, and no event is called. Not from within any call of an exchange, a
  // channel or the pipeline, and nothing is asked of the exchange afterwards.
  virtual void stop() = 0;

 protected:
  void failIfLeftPeersAreNeeded() const;

  const Troubles troubles_;

 private:
  std::set<int> left_;
};

}  // namespace fairring
