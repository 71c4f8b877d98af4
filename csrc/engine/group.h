// One process group on one rank: takes calls and carries them out with its peers. Made at the group's first use.
// The public methods may be called from any thread but one that the loop waits for; what they start runs on the loop.
// The first error wins, is told to the neighbours, which relay it, and ends all calls, those to come too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/loop.h"
#include "engine/call.h"
#include "engine/rank_facts.h"
#include "exchange/acceptor.h"
#include "exchange/contact_pipes.h"
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
};

class Group {
 public:
  // facts[r] is rank r's. `entrance` is where this group's connections arrive, made when the group was.
  // Throws Failure where the facts don't fit together (settings that differ, memory too small).
  Group(LoopThread& loop, std::shared_ptr<Entrance> entrance, GroupSettings settings, std::vector<RankFacts> facts);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // Leaves in good order: what the peers still need of what was completed here is delivered first.
  ~Group();

  void submit(Call call);
  void abort(const Error& error);  // nothing, if there was an error before
  Error error() const;             // the first one, if any
  const Topology& topology() const;

 private:
  LoopThread& loop_;
  std::shared_ptr<class Member> member_;
};

}  // namespace fairring
