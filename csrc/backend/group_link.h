// How delegated calls reach their group, and learn of its end. It outlives the group: a stock backend's threads and the
// user's Works may come late, when the engine and the completion thread are no more; then nothing is watched, and tasks
// run where they are posted.
//
// A stock backend that fails says little ("Connection closed by peer"), and the group, which knows who died, may hear
// of it a moment later. So such a failure is reported here, and the group gets kGrace to fail by itself before the
// stock backend's words become its error. Either way the group fails, and that ends all its calls.
//
// Any thread; waits for nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "backend/completion.h"
#include "backend/membership.h"
#include "base/error.h"
#include "engine/call.h"

namespace fairring {

class GroupLink : public std::enable_shared_from_this<GroupLink> {
 public:
  static constexpr std::chrono::seconds kGrace{2};

  void connect(Membership& membership);
  void close();        // the membership ends
  void groupFailed();  // by itself, or by a call of abort()

  // Has the engine watch a call; `failed` comes on the completion thread. None where there is no engine.
  std::optional<std::uint64_t> enter(DelegatedCall call);
  void finish(std::uint64_t ticket);
  void post(Completion::Task task);
  void reportStockFailure(const Error& error);
  Error error() const;

 private:
  void waitForReason(const Error& error);

  mutable std::mutex mutex_;  // guards all below; held while the membership is called, which does not wait
  std::condition_variable changed_;
  Membership* membership_ = nullptr;
  bool failed_ = false;
  bool reported_ = false;
};

}  // namespace fairring
