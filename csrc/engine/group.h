// One process group on one rank: takes calls and carries them out with its peers. Made at the group's first use.
// The public methods may be called from any thread but one that the loop waits for; what they start runs on the loop.
// The first error wins, is told to the neighbours, which relay it, and ends all calls, those to come too.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/loop_thread.h"
#include "engine/call.h"
#include "engine/rank_facts.h"
#include "exchange/acceptor.h"
#include "exchange/contact_pipes.h"
#include "exchange/traffic.h"
#include "exchange/transport.h"
#include "plan/planner.h"

namespace fairring {

struct GroupSettings {
  std::string name;  // for messages
  int rank = 0;
  Transport transport;
  MakeContactPipes makeTensorPipe;  // where the transport is TensorPipe
  std::uint64_t totalMemoryBytes = 0;
  std::uint64_t sliceBytes = 0;
  std::vector<CostRow> rows;  // by level; empty: the built-in ones
  std::chrono::milliseconds heartbeatTimeout{60'000};
  std::function<void(const Error&)> failed;  // told the first error, once, on the loop; must not block; may be null
};

struct Threads {       // of the process, for all groups
  LoopThread& slices;  // the loop
  LoopThread& vitals;  // heartbeats and other control messages
};

class Group {
 public:
  // facts[r] is rank r's. `entrance` is where this group's connections arrive, made when the group was.
  // Throws Failure where the facts don't fit together (settings that differ, memory too small).
  Group(Threads threads, std::shared_ptr<Entrance> entrance, GroupSettings settings, std::vector<RankFacts> facts);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // Leaves in good order: what the peers still need of what was completed here is delivered first.
  ~Group();

  // `waited`: the caller goes on to wait for it on this thread, by waitFor(); where it can, it serves the loop itself.
  void submit(Call call, bool waited = false);
  // A call that somebody else carries out begins; finish() says that it is over, however it ended.
  std::uint64_t enter(OutsideCall call);
  void finish(std::uint64_t outsideCall);
  void abort(const Error& error);  // nothing, if there was an error before
  Error error() const;             // the first one, if any
  TrafficByLevel traffic() const;  // so far; waits for the loop

 private:
  Threads threads_;
  std::shared_ptr<class Member> member_;
  std::mutex order_;                // calls reach the loop in the order in which they are numbered
  std::uint64_t outsideCalls_ = 0;  // guarded by order_
};

}  // namespace fairring
