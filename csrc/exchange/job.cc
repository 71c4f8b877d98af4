#include "exchange/job.h"

#include <atomic>
#include <utility>

namespace fairring {

Job Job::shared(Loop::Piece piece) {
  Job job(std::move(piece));
  job.isShared_ = true;
  return job;
}

Job Job::timed(std::chrono::nanoseconds::rep& sum) && {
  if (isEmpty()) return {};
  piece_ = [piece = std::move(piece_), &sum] {
    const auto began = std::chrono::steady_clock::now();
    const bool isMore = piece();
    const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - began;
    std::atomic_ref(sum).fetch_add(time.count(), std::memory_order_relaxed);
    return isMore;
  };
  return std::move(*this);
}

bool Job::runAtOnce() {
  if (isEmpty()) return true;
  if (isShort_) piece_();
  return isShort_;
}

void Job::run(Loop& loop, const void* owner, std::uint64_t urgency, std::function<void()> done) && {
  if (runAtOnce()) return done();
  if (isShared_) return loop.share(owner, urgency, std::move(piece_), std::move(done));
  loop.work(owner, urgency, [piece = std::move(piece_), done = std::move(done)] {
    if (piece()) return true;
    done();
    return false;
  });
}

Job jobOf(Pieces pieces) {
  if (pieces.empty()) return {};
  return Job([pieces = std::move(pieces), next = std::size_t{0}]() mutable {
    pieces[next++]();
    return next < pieces.size();
  });
}

}  // namespace fairring
