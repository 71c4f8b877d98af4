// The store of a group whose members have met without one. What NCCL's ranks tell each other before they are connected
// goes there, so a group that was shrunk or reconfigured needs nobody else's store. Rank 0 has it, where torch has CUDA
// devices there, and says its port when the members meet (meetMembers()); the others connect when they need it. It is a
// TCPStore of torch's: whoever reaches its port can read and write it, as the job's own.
//
// Any thread. get() may wait, without Python's lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/error.h"
#include "group/rank_facts.h"
#include "transport/acceptor.h"

namespace fairring {

class MembersStore {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  static constexpr std::uint16_t kNone = 0;

  // Listens, as rank 0, where the group's facts say that it does, on a port of its own. Throws Failure.
  MembersStore(const std::vector<RankFacts>& facts, int rank, ListenPorts ports);

  std::uint16_t port() const { return ownPort_; }  // what rank 0 tells the others; kNone: that there is no store
  void learn(std::uint16_t port);                  // rank 0's, once the members have met. Waits for nothing
  void breakOff(const Error& error);               // the group has failed: nobody waits any more
  // Waits until the members have met. Throws Failure: where they do not in time, where rank 0 has no store, or has
  // gone.
  StorePtr get(std::chrono::milliseconds timeout);

 private:
  StorePtr connect(std::uint16_t port, std::chrono::milliseconds timeout) const;

  const int rank_;
  const std::string address_;  // rank 0's, as this rank reaches it
  const std::string host_;     // its name, for errors
  std::uint16_t ownPort_ = kNone;

  std::mutex connecting_;  // held while a connection is made
  std::mutex mutex_;       // guards all below
  std::condition_variable changed_;
  std::optional<std::uint16_t> port_;  // none before the members have met
  Error broken_;
  StorePtr store_;  // rank 0's own from the beginning
};

}  // namespace fairring
