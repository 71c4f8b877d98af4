// The records of one rank's last slices in one group: when each step began, which peer it waited for last, when it
// ended. Always on. A ring of fixed size, whose pages are touched as they fill; the oldest records go first.
// The exchanges fill a record as they go and hand it over at the end of the step, so a step costs one copy of 72 bytes,
// and a short task or event of the loop costs one clock reading. On the loop only, except for now().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/loop.h"
#include "exchange/slice.h"

namespace fairring {

// Times are nanoseconds of the loop's clock, this machine's steady one; 0: it has not happened.
struct SliceRecord {
  enum class Kind : std::uint8_t {
    Step,     // of a plan
    Send,     // of messages to a peer: ready to go at `began`, sent at `offered`; at `ready` their memory was free
    Receive,  // of a message: its header came at `began`, all of it was there at `ready`
    Staging,  // from `began` to `ready` the slice waited for memory, or for the mark of an older slice
  };
  Kind kind = Kind::Step;
  Verb verb = Verb::AllReduce;
  std::uint16_t level = 0;
  std::int32_t peer = -1;       // Step: the rank that was waited for last, if any; else the other end
  std::uint64_t signature = 0;  // the hash of the call (group/call_table.h)
  std::uint64_t slice = 0;      // SliceId::onWire()
  std::uint64_t bytes = 0;      // of the message, or of staging
  std::int64_t began = 0;
  std::int64_t offered = 0;   // own work before that is done: peers may have this rank's data
  std::int64_t heard = 0;     // the last of the peers' data was there
  std::int64_t ready = 0;     // the result is there
  std::int64_t released = 0;  // no rank needs the slice's memory for this step any more
};
static_assert(sizeof(SliceRecord) == 72);

class Recorder {
 public:
  static constexpr std::size_t kKept = std::size_t{1} << 13;  // slices: 0.6 MB

  // The least bytes to a peer in a step that are recorded as Send or Receive: fewer say nothing about a link's rate.
  static constexpr std::uint64_t kLeastBytes = 16 << 10;

  explicit Recorder(Loop& loop, std::size_t kept = kKept) : loop_(loop), capacity_(kept) {}

  static std::int64_t now();  // the steady clock; any thread
  // The loop's clock, which differs in a simulation: the time of the running task, handler or piece.
  std::int64_t time() const;
  // The time at which that many bytes were moved. A short move takes the time of its event, to save a clock reading.
  std::int64_t timeOf(std::uint64_t bytes) const;
  // The record of a step that has not begun.
  static SliceRecord recordOf(const Slice& slice, std::size_t step);

  void add(const SliceRecord& record);

  // The steps that were over at that time or later, in the order in which they came.
  std::vector<SliceRecord> slices(std::int64_t since = 0) const;

 private:
  // Record n stands at n mod capacity, which is never divided by.
  std::size_t placeOf(std::uint64_t n) const {
    const std::uint64_t back = added_ - n;
    return back <= next_ ? next_ - back : next_ + capacity_ - back;
  }

  Loop& loop_;
  const std::size_t capacity_;
  std::vector<SliceRecord> records_;
  std::uint64_t added_ = 0;
  std::size_t next_ = 0;  // the place of the next one
};

// Uses the recorder's clock. Without a recorder nothing is recorded, and no clock is read: 0.
inline std::int64_t timeBy(const Recorder* recorder) { return recorder == nullptr ? 0 : recorder->time(); }
inline std::int64_t timeBy(const Recorder* recorder, std::uint64_t bytes) {
  return recorder == nullptr ? 0 : recorder->timeOf(bytes);
}

}  // namespace fairring
