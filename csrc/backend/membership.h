// This rank's place in one group, from the store to the engine, in two steps.
//
// Made with the group, without waiting for any other rank's call: agrees on the group's secret with whoever else is
// there (the first to come draws it), opens this rank's door, and publishes this rank's facts. The engine follows at
// the group's first use, when the facts of all ranks are fetched: that waits for ranks that have not made the group
// yet.
//
// Store keys, under the group's prefix: "fairring/<rank>/generation" counts this rank's memberships, so that a group
// which is made again on the same store (destroy and init, a restart by torchrun) never reads what the last one left.
// All others are "fairring/<generation>/...": "secret", and "<rank>/facts".
//
// Any thread; waits without Python's lock (the callers see to it).
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend/runtime.h"
#include "engine/group.h"
#include "exchange/hello.h"

namespace fairring {

struct MembershipOptions {
  std::string name;  // the group's, equal on all ranks
  int rank = 0;
  int size = 1;
  RankFacts facts;     // port is filled in here
  std::string secret;  // 32 bytes, or empty: drawn, and shared through the store
  ListenPorts ports;
  Transport transport;
  std::uint64_t totalMemoryBytes = 0;
  std::uint64_t sliceBytes = 0;
};

class Membership {
 public:
  Membership(const c10::intrusive_ptr<c10d::Store>& store, MembershipOptions options);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();  // leaves in good order; waits for what peers still need from here

  // The engine; the first call makes it. Throws Failure: a rank that is not there in time, settings that differ.
  Group& group(std::chrono::milliseconds timeout);
  void abort(const Error& error);  // ends all calls, those to come too
  Error error() const;
  Completion& completion() { return runtime_->completion(); }

 private:
  Secret agreeOnSecret() const;
  std::vector<RankFacts> fetchFacts(std::chrono::milliseconds timeout) const;
  std::vector<int> missingRanks(c10d::Store& store) const;
  std::string key(const std::string& name) const;
  std::string factsKey(int rank) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const MembershipOptions options_;
  const std::shared_ptr<Runtime> runtime_;
  const std::int64_t generation_;
  std::shared_ptr<Entrance> entrance_;

  std::mutex making_;         // held while the engine is made, which may wait for other ranks; never taken by abort()
  mutable std::mutex mutex_;  // guards the two below
  std::shared_ptr<Group> group_;
  Error aborted_;
};

}  // namespace fairring
