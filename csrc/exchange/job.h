// Work on a slice's memory (copies, sums, roundings), cut into pieces of some tens of microseconds, so that a message
// never waits longer than that. A value; the owner of the loop's progress runs it, or helpers do (base/work_queue.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/loop.h"

namespace fairring {

constexpr std::uint64_t kPieceBytes = 512 << 10;  // read in one piece

class Job {
 public:
  Job() = default;  // there is nothing to do
  // isShort: the first piece is the whole job, and takes a few microseconds at most.
  explicit Job(Loop::Piece piece, bool isShort = false) : piece_(std::move(piece)), isShort_(isShort) {}
  // A long one of pieces that any thread may run (base/work_queue.h).
  static Job shared(Loop::Piece piece);

  // The same job, which adds the time of its pieces, in ns, to a sum. The sum has to outlive it, and other jobs may add
  // to it at the same time.
  Job timed(std::chrono::nanoseconds::rep& sum) &&;

  bool isEmpty() const { return piece_ == nullptr; }
  // Runs an empty or a short job to its end. False, and nothing is done, for a long one.
  bool runAtOnce();
  // Puts it on the loop as a job of this owner; `done` follows the last piece. An empty or short job is over when this
  // returns, `done` included, because a turn of the loop would take longer than its work.
  void run(Loop& loop, const void* owner, std::uint64_t urgency, std::function<void()> done) &&;

 private:
  Loop::Piece piece_;
  bool isShort_ = false;
  bool isShared_ = false;
};

// Work that has been cut into pieces.
using Pieces = std::vector<std::function<void()>>;
Job jobOf(Pieces pieces);

}  // namespace fairring
