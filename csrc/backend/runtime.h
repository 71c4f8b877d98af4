// The runtime that all groups of a process share: the loop's thread, the heartbeats' thread, the listener, the
// completion thread, the threads that wait for copies from devices.
// Made with the first group, ended with the last. The listener has the addresses and ports of the first group; later
// groups use the same one. Not released on its own threads (torch's tables hold every group until it is destroyed, on
// one of the user's threads).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/completion.h"
#include "backend/copy_waiters.h"
#include "base/loop_thread.h"
#include "group/group.h"
#include "transport/acceptor.h"

namespace fairring {

struct Interfaces {  // their IP addresses
  std::vector<std::string> rail;
  std::vector<std::string> site;  // towards other sites; none: the same
};

class Runtime {
 public:
  // The process's runtime, made if there is none. Throws Failure(Configuration) if it can't listen.
  static std::shared_ptr<Runtime> acquire(const Interfaces& interfaces, ListenPorts ports);

  Runtime(Interfaces interfaces, ListenPorts ports);

  Completion& completion() { return completion_; }
  CopyWaiters& copyWaiters() { return copyWaiters_; }
  Threads threads() { return {loop_, vitals_}; }
  Acceptor& acceptor() { return acceptor_; }
  // Gives the loop helper threads (base/work_queue.h), no fewer than it has: so many, or if none are given, by the
  // cores that there are for each rank of the machine. ranks: that are known of, in a group and by the launcher.
  void help(std::optional<std::size_t> helpers, std::size_t ranks);
  const Interfaces& interfaces() const { return interfaces_; }  // of the first group

 private:
  Completion completion_;  // first made, last ended: the loop posts to it
  LoopThread vitals_;
  LoopThread loop_;
  const Interfaces interfaces_;
  Acceptor acceptor_;
  std::size_t mostRanks_ = 1;  // of the machine, in any group; on the loop
  CopyWaiters copyWaiters_;    // last made, first ended: what it tells goes to the loop
};

}  // namespace fairring
