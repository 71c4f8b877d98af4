// The settings that a group is made with, and the threads that serve it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/loop_thread.h"
#include "device/accelerator.h"
#include "plan/planner.h"
#include "transport/transport.h"

namespace fairring {

// The settings that users choose. All may be left out of an initializer.
struct GroupTuning {
  std::uint64_t totalMemoryBytes = 0;
  std::uint64_t sliceBytes = 0;
  std::vector<CostRow> rows = {};  // by level; empty: the built-in ones
  GroupingFrom grouping = {};      // of machines
  std::chrono::milliseconds heartbeatTimeout{60'000};
  std::chrono::milliseconds connectTimeout{60'000};  // for a neighbour to be connected, once all have met
  // An existing directory that gets this rank's trace when the group ends; empty: none. Records then go further back.
  std::string traceDirectory = {};
};

// Looks, without blocking, for the error that the group has failed with on another rank: a peer that is gone before it
// was connected may have left because of that. `found` may be called on any thread, once; an empty error: nothing is
// known.
using LookForFailure = std::function<void(std::function<void(const Error&)> found)>;

struct GroupSettings {
  std::string name;  // for messages
  int rank = 0;
  int globalRank = 0;
  GroupTuning tuning;
  Transports transports;
  std::function<void(const Error&)> failed;  // told the first error, once, on the loop; must not block; may be null
  // The channels to all peers have locked the memory that they need for RDMA, or never will. Once, on the loop; may be
  // null.
  std::function<void()> memoryLocked = nullptr;
  std::function<void(const std::string&)> warn = nullptr;  // on the loop; must not block; may be null
  // Whether the process ends because of this first error. Then a device stays where it is, at its gates: a program
  // whose host runs ahead could save what comes behind them. Asked on the loop. Null: it does not end.
  std::function<bool(const Error&)> endsProcess = nullptr;
  // These serve calls on a device. The first makes its accelerator, on the caller's thread, with these ranks of its
  // machine, each of which it waits for no longer than the call may take.
  std::function<std::shared_ptr<Accelerator>(int device, const std::vector<int>& machineRanks,
                                             std::chrono::milliseconds timeout)>
      makeAccelerator = nullptr;
  // How long the group's end waits for calls on a device: they may wait for something that never comes.
  std::chrono::seconds endsDeviceWithin{30};
  std::function<void(std::function<void()>)> offLoop =
      nullptr;                              // runs, on a thread that may block, what the loop must not
  LookForFailure lookForFailure = nullptr;  // null: there is nowhere to look
};

struct Threads {       // of the process, for all groups
  LoopThread& slices;  // the loop
  LoopThread& vitals;  // heartbeats and other control messages
};

}  // namespace fairring
