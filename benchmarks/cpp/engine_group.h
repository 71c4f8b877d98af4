// An engine group of all ranks, over real connections, called as the backend calls it: the thread that waits serves the
// loop. No torch, but for the transport TensorPipe, and no Python.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/loop_thread.h"
#include "contender.h"
#include "group/group.h"
#include "meeting.h"

namespace fairring {

// The objects that the groups of a process share, as in backend/runtime.h.
struct EngineThreads {
  explicit EngineThreads(const Meeting& meeting) : acceptor(slices, {meeting.address()}, {}) {}
  LoopThread vitals;
  LoopThread slices;
  Acceptor acceptor;
};

class EngineGroup final : public Contender {
 public:
  // Called by all ranks at once. The first sum makes the connections.
  EngineGroup(Meeting& meeting, EngineThreads& threads, const Transport& transport);
  ~EngineGroup() override;

  std::string name() const override { return "fairring, " + transport_; }
  void sum(std::span<float> tensor) override;
  std::vector<int> ranks() const override;

 private:
  EngineThreads& threads_;
  const int world_;
  const std::string transport_;
  std::shared_ptr<GroupEndpoint> endpoint_;
  std::unique_ptr<Group> group_;

  std::mutex mutex_;  // guards what the loop tells
  std::condition_variable changed_;
  bool done_ = true;
  Error error_;
};

}  // namespace fairring
