// This rank's part in a group: its connections to its neighbours (the ranks of its machine and of its rails), and the
// pipeline that works through them. Opens by itself, in the background: calls wait until every neighbour is there.
// Constructed by a caller; then on the loop only, but for error(). Kept alive by its Group and by its timers.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "engine/farewells.h"
#include "engine/group.h"
#include "engine/neighbours.h"
#include "engine/pipeline.h"
#include "exchange/control.h"
#include "exchange/links.h"
#include "exchange/rails.h"
#include "exchange/shared_memory.h"
#include "exchange/tcp_pipes.h"

namespace fairring {

class Member final : public ControlReceiver, public std::enable_shared_from_this<Member> {
 public:
  Member(Loop& loop, std::shared_ptr<Entrance> entrance, GroupSettings settings, std::vector<RankFacts> facts);

  void open();
  void submit(Call call);
  void fail(const Error& error);
  // `left` is called when no peer needs anything of this rank any more. Calls that are not finished end with an error.
  void leave(std::function<void()> left);
  void close();

  Error error() const;
  const Topology& topology() const { return planner_.topology(); }

  void onControl(int peer, ControlMessage message) override;
  void onControlEnded(int peer, const Error& error) override;

 private:
  void prepare();
  void linkNeighbours();
  void makePipes();
  void onLinked(Arrival arrival);
  void introduce(int peer);
  void openIfComplete();
  void tellFailure(const std::vector<int>& peers);
  void onPipeEnded(int peer, const Error& error);
  void onGoodbye(int peer, std::uint64_t slices);
  void answerGoodbyes();
  void onDeadline(const std::string& title, std::chrono::milliseconds timeout);
  std::set<int> missing() const;
  // Runs what may throw; a Failure ends the group.
  void guarded(const std::function<void()>& action);

  Loop& loop_;
  const std::shared_ptr<Entrance> entrance_;
  const GroupSettings settings_;
  const int rank_;
  const Planner planner_;
  const Neighbours neighbours_;

  std::unique_ptr<Links> links_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<SharedMemory> machine_;
  std::unique_ptr<Rails> rails_;
  std::unique_ptr<TcpPipes> tcp_;
  std::unique_ptr<ContactPipes> tensorpipe_;
  std::unique_ptr<Pipeline> pipeline_;
  bool pipesOpen_ = false;
  bool open_ = false;

  std::map<std::uint64_t, Loop::TimerId> deadlines_;  // by call
  std::uint64_t nextCall_ = 0;
  Farewells farewells_;

  mutable std::mutex mutex_;  // guards error_, which callers read
  Error error_;
};

}  // namespace fairring
