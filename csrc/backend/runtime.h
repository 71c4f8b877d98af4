// What all groups of a process share: the loop's thread, that of the heartbeats, the listener, the completion thread.
// Made with the first group, ended with the last. The listener stands on the addresses and ports of the first group;
// later groups use the same one. Not released on its own threads (torch's tables hold every group until it is
// destroyed, on a thread of the user's).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/completion.h"
#include "base/loop_thread.h"
#include "engine/group.h"
#include "exchange/acceptor.h"

namespace fairring {

class Runtime {
 public:
  // The process's runtime, made where there is none. Throws Failure(Configuration) where it can't listen.
  static std::shared_ptr<Runtime> acquire(const std::vector<std::string>& addresses, ListenPorts ports);

  Runtime(const std::vector<std::string>& addresses, ListenPorts ports);

  Completion& completion() { return completion_; }
  Threads threads() { return {loop_, vitals_}; }
  Acceptor& acceptor() { return acceptor_; }

 private:
  Completion completion_;  // first made, last ended: the loop posts to it
  LoopThread vitals_;
  LoopThread loop_;
  Acceptor acceptor_;
};

}  // namespace fairring
