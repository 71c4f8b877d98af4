// A stock backend's call on CPU tensors as the user holds it. It ends when the stock Work does or when the group fails,
// whichever comes first: Gloo may be stuck long after the group knows that a peer has died. Gloo's own complaint
// becomes an error that names what the group knows.
//
// The end of a stock Work that has a future is learned from that, on the stock backend's thread. Gloo's sends and
// receives have none: there wait() calls through, as it would without us, and only who waits learns the end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/group_link.h"
#include "backend/tracked_work.h"

namespace fairring {

class DelegatedWork : public TrackedWork {
 public:
  using Ref = c10::intrusive_ptr<DelegatedWork>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  DelegatedWork(WorkLabel label, const Operation& operation, const std::vector<at::Tensor>& inputs,
                std::shared_ptr<GroupLink> link);
  ~DelegatedWork() override;

  static void enter(const Ref& work, DelegatedCall call);           // before the stock backend has it
  static void follow(const Ref& work, WorkPtr stock);               // it has
  static void done(const Ref& work) { work->stockEnded(nullptr); }  // it has carried it out, and made no Work
  static void refused(const Ref& work,
                      const std::exception_ptr& failure);  // it has not: throws, with what the group knows

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  void abort() override;
  // The last owner is gone. The destructor runs later, where the last weak reference goes: on the loop, maybe.
  void release_resources() override;

 private:
  bool waitThrough(std::chrono::milliseconds timeout);
  void stockEnded(const std::exception_ptr& failure);
  void groupFailed(const Error& error);
  void endAndTell(std::exception_ptr failure);
  std::exception_ptr explained(const Error& error) const;
  WorkPtr stock() const;

  c10::IValue value() override;
  c10::TypePtr valueType() const override;

  const std::shared_ptr<GroupLink> link_;
  const bool isPointToPoint_;
  std::optional<std::uint64_t> ticket_;  // set before the stock backend has the call
  // Guarded by mutex_ of the base class.
  WorkPtr stock_;
  c10::intrusive_ptr<c10::ivalue::Future> stockFuture_;
  std::string complaint_;  // the stock backend's
};

}  // namespace fairring
