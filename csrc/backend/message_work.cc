#include "backend/message_work.h"

#include <c10/util/Exception.h>

#include <utility>

namespace fairring {

namespace {

class Waiter {
 public:
  explicit Waiter(std::atomic<int>& count) : count_(count) { ++count_; }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  ~Waiter() { --count_; }

 private:
  std::atomic<int>& count_;
};

}  // namespace

MessageWork::MessageWork(WorkLabel label, const Operation& operation, CallMemory memory, const at::Tensor& tensor,
                         std::weak_ptr<Runtime> runtime, Patience patience)
    : FairringWork(std::move(label), operation, {&tensor, 1}, std::move(memory), {{tensor}}, std::move(runtime)),
      patience_(std::move(patience)) {}

void MessageWork::onDone(c10::intrusive_ptr<MessageWork> work, const Error& error, int from, Completion& completion) {
  work->source_ = from;
  work->progress_->isUnderWay = false;
  FairringWork::onDone(std::move(work), error, completion);
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  const Waiter waiter(progress_->waiters);
  const bool isLimited = timeout > kNoTimeout || patience_.limit.count() <= 0;
  if (!isLimited && !endsWithin(patience_.limit))
    patience_.expire([progress = progress_] { return progress->isUnderWay.load(); });
  return FairringWork::wait(timeout);
}

int MessageWork::sourceRank() const {
  const int source = source_;
  TORCH_CHECK(source >= 0, label().title, " on rank ", label().rank, " has no source: it is no receive, or not over");
  return source;
}

}  // namespace fairring
