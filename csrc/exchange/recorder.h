// The records of one rank's last calls and slices in one group: when each step began, which peer it waited for last,
// when it ended. Always on. Two rings of fixed size, whose pages are touched as they fill; the oldest records go first.
// The exchanges fill a record as they go and hand it over at the end of the step, so a step costs one copy of 72 bytes,
// and a short task or event of the loop costs one clock reading. On the loop only, except for now().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/loop.h"
#include "base/text.h"
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
  std::uint64_t signature = 0;  // of the call (CallRecord)
  std::uint64_t slice = 0;      // SliceId::onWire()
  std::uint64_t bytes = 0;      // of the message, or of staging
  std::int64_t began = 0;
  std::int64_t offered = 0;   // own work before that is done: peers may have this rank's data
  std::int64_t heard = 0;     // the last of the peers' data was there
  std::int64_t ready = 0;     // the result is there
  std::int64_t released = 0;  // no rank needs the slice's memory for this step any more
};
static_assert(sizeof(SliceRecord) == 72);

struct CallRecord {
  std::uint64_t number = 0;     // the same on all ranks
  std::uint64_t signature = 0;  // likewise
  Text text;
  std::int64_t submitted = 0;  // by its caller
  std::int64_t begun = 0;      // the loop has it
  std::int64_t ended = 0;
  bool failed = false;
};

class Recorder {
 public:
  struct Capacity {
    std::size_t slices = std::size_t{1} << 13;  // 0.6 MB
    std::size_t calls = std::size_t{1} << 12;
  };

  // The least bytes to a peer in a step that are recorded as Send or Receive: fewer say nothing about a link's rate.
  static constexpr std::uint64_t kLeastBytes = 16 << 10;

  Recorder(Loop& loop, Capacity capacity) : loop_(loop), slices_(capacity.slices), calls_(capacity.calls) {}

  static std::int64_t now();  // the steady clock; any thread
  // The loop's clock, which differs in a simulation: the time of the running task, handler or piece.
  std::int64_t time() const;
  // The time at which that many bytes were moved. A short move takes the time of its event, to save a clock reading.
  std::int64_t timeOf(std::uint64_t bytes) const;
  // The record of a step that has not begun.
  static SliceRecord recordOf(const Slice& slice, std::size_t step);

  void submitted(CallRecord call);  // begun now
  void ended(std::uint64_t number, bool failed);
  void add(const SliceRecord& record);

  // The calls that are over now and were not before, in that order.
  std::vector<SliceRecord> slices(std::int64_t since = 0) const;
  // At most that many of the last ones, in order, including those that have not ended.
  std::vector<CallRecord> calls(std::size_t last) const;

 private:
  // Record n stands at n mod capacity, which is never divided by. The place of the next one is prefetched: a ring comes
  // round so late that its memory has left the cache, and waiting for it took most of the time of recording.
  template <class Record>
  class Ring {
   public:
    explicit Ring(std::size_t capacity) : capacity_(capacity) {}
    template <class Given>
    void add(Given&& record);
    Record& at(std::uint64_t n) { return records_[placeOf(n)]; }
    const Record& at(std::uint64_t n) const { return records_[placeOf(n)]; }
    std::uint64_t first() const { return added_ - records_.size(); }
    std::uint64_t end() const { return added_; }

   private:
    std::size_t placeOf(std::uint64_t n) const {
      const std::uint64_t back = added_ - n;
      return back <= next_ ? next_ - back : next_ + capacity_ - back;
    }

    const std::size_t capacity_;
    std::vector<Record> records_;
    std::uint64_t added_ = 0;
    std::size_t next_ = 0;  // the place of the next one
  };

  Loop& loop_;
  Ring<SliceRecord> slices_;
  Ring<CallRecord> calls_;
};

// Uses the recorder's clock. Without a recorder nothing is recorded, and no clock is read: 0.
inline std::int64_t timeBy(const Recorder* recorder) { return recorder == nullptr ? 0 : recorder->time(); }
inline std::int64_t timeBy(const Recorder* recorder, std::uint64_t bytes) {
  return recorder == nullptr ? 0 : recorder->timeOf(bytes);
}

}  // namespace fairring
