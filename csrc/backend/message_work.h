// A send or a receive as the user holds it. It has a timer only while a thread waits for it: a receive may stand ready
// for as long as it likes. A wait() without a time of its own lasts as long as the group's timeout; then the group
// fails, as it does with any call that takes too long.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "backend/work.h"
#include "exchange/point_to_point.h"

namespace fairring {

class MessageWork final : public FairringWork {
 public:
  // Ends the group if the call is still under way.
  using Expire = std::function<void(std::function<bool()> isUnderWay)>;
  struct Patience {
    std::chrono::milliseconds limit{0};  // 0: none
    Expire expire;
  };

  MessageWork(WorkLabel label, const Operation& operation, CallMemory memory, const at::Tensor& tensor,
              std::weak_ptr<Runtime> runtime, Patience patience);

  // Does the work of FairringWork::onDone after its own. from: the sender, for a receive.
  static void onDone(c10::intrusive_ptr<MessageWork> work, const Error& error, int from, Completion& completion);

  MessageWaiters waiters() const { return {progress_, &progress_->waiters}; }
  const at::Tensor& sent() const { return memory().inputs.front(); }
  const at::Tensor& received() const { return memory().outputs.front().memory(); }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  int sourceRank() const override;

 private:
  struct Progress {  // which may be asked for after the work's end
    std::atomic<bool> isUnderWay{true};
    std::atomic<int> waiters{0};
  };

  const Patience patience_;
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::atomic<int> source_ = -1;
};

}  // namespace fairring
