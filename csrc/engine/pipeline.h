// The pipeline: takes calls in order, cuts them into slices, and moves each slice through the steps of its plan.
// A slice is data, (plan, step, phase, place in staging); run() moves on whatever can move. Two rules keep it free of
// deadlock: staging is taken in slice order, and steps of one level and direction begin in slice order. So the oldest
// slice never waits for a later one, on any rank.
// Holder of the loop's role only. Knows no network and no processes: the exchanges do.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/call.h"
#include "engine/staging.h"
#include "exchange/exchange.h"
#include "plan/planner.h"

namespace fairring {

class Pipeline {
 public:
  struct Levels {            // who carries out the steps
    Exchange* machine;       // level 0
    Exchange* rails;         // those above; null where there are none
    std::size_t mostSlices;  // in flight
    std::byte* staging;
    std::uint64_t stagingBytes;
  };

  Pipeline(const Planner& planner, int rank, Levels levels);

  // signature: of this call and all before it, to be compared with the peers'.
  void submit(Call call, std::uint64_t signature);
  void open();  // from now on slices move; before, calls only queue
  // The exchanges have been stopped: nothing moves any more. Calls go on queueing until fail() ends them.
  void halt();
  void fail(const Error& error);

  bool idle() const { return calls_.empty() && inFlight_.empty(); }
  bool hasCalls() const { return !calls_.empty(); }
  std::uint64_t slicesCompleted() const { return completed_; }
  const Call* oldestCall() const { return calls_.empty() ? nullptr : &calls_.front()->call; }
  std::function<void()> onProgress;  // some step became ready

 private:
  enum class Phase { Waiting, Running, Finished };
  struct Chosen {  // for all calls of a size
    std::shared_ptr<const Plan> plan;
    std::uint64_t turns;
    std::uint64_t sliceElements;
    std::uint64_t stagingBytes;  // of the ring, that its slices use in turn
  };
  struct Pending {  // a call, until all of its slices are finished
    Call call;
    std::uint64_t signature;
    Chosen chosen;
    std::uint64_t cutElements = 0;  // that are in slices already
    std::size_t unfinished = 0;     // slices under way
    bool cut = false;               // completely
  };
  struct InFlight {
    std::shared_ptr<Slice> slice;
    std::shared_ptr<Pending> call;
    std::size_t step = 0;
    Phase phase = Phase::Waiting;
    std::size_t unreleased;
  };
  struct Turn {  // steps that begin in slice order
    int level;
    bool up;
    auto operator<=>(const Turn&) const = default;
  };

  void run();
  bool cutNext();
  bool hasMark() const;
  bool beginNext(InFlight& state);
  void onReady(std::uint64_t number);
  void onReleased(std::uint64_t number);
  void finish(const std::shared_ptr<Pending>& call);
  const Chosen& chosenFor(std::uint64_t elements, std::size_t elementBytes);
  std::shared_ptr<const Layout> layoutOf(const Chosen& chosen, std::uint64_t elements, std::size_t elementBytes);
  Exchange& exchangeOf(const Step& step) const { return step.level == 0 ? *levels_.machine : *levels_.rails; }
  static Turn turnOf(const Step& step) { return {step.level, step.verb == Verb::AllGather}; }

  const Planner& planner_;
  const int rank_;
  const Levels levels_;
  StagingRing ring_;
  std::deque<std::shared_ptr<Pending>> calls_;  // in order; the first may be finished before its predecessors' releases
  std::map<std::uint64_t, InFlight> inFlight_;
  std::map<Turn, std::set<std::uint64_t>> notBegun_;   // slices that have such a step before them
  using Size = std::pair<std::uint64_t, std::size_t>;  // elements, and the bytes of each
  std::map<Size, Chosen> chosen_;
  std::map<std::tuple<Plan, std::uint64_t, Size>, std::shared_ptr<const Layout>> layouts_;  // by plan, turn and size
  std::uint64_t nextSlice_ = 0;
  std::uint64_t completed_ = 0;
  bool open_ = false;
  bool running_ = false;
  bool again_ = false;
};

}  // namespace fairring
