// The pipeline: takes calls in order, cuts them into slices, and moves each slice through the steps of its plan.
// A slice is data, (plan, step, phase, place in staging); run() moves on what has become due. Two rules keep it free of
// deadlock: staging is taken in slice order, and steps of one level and direction begin in slice order. So the oldest
// slice never waits for a later one, on any rank. Small calls have a traffic class of their own (traffic_class.h), with
// staging of its own: no slice waits for one of the other class. Owner of the loop's progress only. Knows no network
// and no processes: the exchanges do.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/call.h"
#include "engine/packing.h"
#include "engine/staging.h"
#include "exchange/exchange.h"
#include "plan/planner.h"

namespace fairring {

class SparseCall;

class Pipeline {
 public:
  struct Levels {            // who carries out the steps
    Exchange* machine;       // level 0
    Exchange* rails;         // those above; null where there are none
    std::size_t mostSlices;  // of a class in flight
    std::byte* staging;
    std::uint64_t stagingBytes;
    std::uint64_t expressBytes = 0;  // of staging behind these, for small calls; 0: they have no class of their own
  };

  Pipeline(const Planner& planner, int rank, Levels levels);

  // Staging of small calls, beside so much for the others.
  static std::uint64_t expressBytesBeside(std::uint64_t stagingBytes);

  // signature: of this call and all before it, to be compared with the peers'.
  void submit(Call call, std::uint64_t signature);
  void open();  // from now on slices move; before, calls only queue
  // The exchanges have been stopped: nothing moves any more. Calls go on queueing until fail() ends them.
  void halt();
  void fail(const Error& error);

  bool idle() const;
  bool hasCalls() const { return !calls_.empty(); }
  ByTrafficClass<std::uint64_t> completedBelow() const;  // slice numbers
  const Call* oldestCall() const { return calls_.empty() ? nullptr : &calls_.front()->call; }
  std::function<void()> onProgress;  // some step became ready

 private:
  enum class Phase { Waiting, Running, Finished };
  struct CachedPlan {  // for all calls of a size
    std::shared_ptr<const Plan> plan = nullptr;
    std::uint64_t turns = 1;
    std::uint64_t sliceBytes = 0;    // of each row of a call's bytes (packing.h)
    std::uint64_t stagingBytes = 0;  // of the ring, that its slices use in turn
    TrafficClass trafficClass;
  };
  struct Pending {  // a call, or a part of a sparse one, until all of its slices are finished
    Call call;
    Packing packing;
    std::uint64_t signature;
    CachedPlan chosen;
    std::uint64_t cutBytes = 0;  // of each row, that are in slices already
    std::size_t unfinished = 0;  // slices under way
    std::uint32_t refused = 0;   // as Slice has it, of those that are finished
    bool cut = false;            // completely
    // Of sparse calls (sparse_call.h): until what is before it has told its size, it can't be cut, nor what is behind.
    bool sized = true;
    std::shared_ptr<const SparseRows> rows = nullptr;
    std::function<void(const Range& bytes)> prepare = nullptr;  // as Slice has it
    // Of its parts but the last, instead of the call's done: with who refused, as Slice has it.
    std::function<void(std::uint32_t refused)> learned = nullptr;
  };
  struct InFlight {
    std::shared_ptr<Slice> slice;
    std::shared_ptr<Pending> call;
    std::size_t step = 0;
    Phase phase = Phase::Waiting;
    std::size_t unreleased;
  };
  struct Queue {  // of one class
    StagingRing ring;
    std::byte* staging;
    std::uint64_t next;           // slice's number
    std::uint64_t completed = 0;  // slices
    // NOLINTBEGIN(readability-redundant-member-init): may be left out of an initializer that names members
    std::deque<std::shared_ptr<Pending>> uncut = {};  // calls, in order
    std::map<std::uint64_t, InFlight> inFlight = {};  // by slice
    // NOLINTEND(readability-redundant-member-init)
  };
  struct Turn {  // steps that begin in slice order
    TrafficClass trafficClass;
    int level;
    bool up;
    auto operator<=>(const Turn&) const = default;
  };

  void submitSparse(Call call, std::uint64_t signature);
  void submitBlocks(Call call, std::uint64_t signature);
  std::shared_ptr<Pending> enqueue(Call call, Packing packing, std::uint64_t signature, CachedPlan chosen,
                                   bool sized = true);
  void drop(const std::shared_ptr<Pending>& call);  // not sized
  void sizeValues(Pending& values, const std::shared_ptr<SparseCall>& sparse);
  void size(Pending& pending, Operand operand, const PlanChoice& choice);
  void run();
  bool cutNext(Queue& queue);
  std::shared_ptr<Slice> nextSlice(const Queue& queue, const Pending& pending);
  static Range stretchOf(const Pending& pending);
  bool hasMark(const Queue& queue) const;
  Queue& queueOf(std::uint64_t slice) { return queues_[trafficClassOf(slice)]; }
  TrafficClass trafficClassFor(std::uint64_t bytes, const PlanChoice& choice) const;
  void beginNext(std::uint64_t number);
  void onReady(std::uint64_t number);
  void onReleased(std::uint64_t number);
  void finish(const std::shared_ptr<Pending>& call);
  const CachedPlan& chosenFor(std::uint64_t bytes, std::optional<Half> half = std::nullopt);  // of the longest row
  CachedPlan chosenBy(const PlanChoice& choice, TrafficClass trafficClass, std::uint64_t turns);
  std::shared_ptr<const Layout> layoutOf(const CachedPlan& chosen, std::uint64_t slice, std::uint64_t bytes);
  std::shared_ptr<const Layout> layoutOfBlocks(const std::vector<std::uint64_t>& sizes);  // by rank
  Exchange& exchangeOf(const Step& step) const { return step.level == 0 ? *levels_.machine : *levels_.rails; }
  static Turn turnOf(std::uint64_t slice, const Step& step) {
    return {trafficClassOf(slice), step.level, step.verb == Verb::AllGather || step.verb == Verb::Store};
  }

  const Planner& planner_;
  const int rank_;
  const Levels levels_;
  ByTrafficClass<Queue> queues_;
  std::deque<std::shared_ptr<Pending>> calls_;  // in order; the first may be finished before its predecessors' releases
  std::map<Turn, std::deque<std::uint64_t>> notBegun_;  // slices that have such a step before them, in order
  std::deque<std::uint64_t> due_;                       // slices whose next step may be the next of its turn
  std::map<std::pair<std::optional<Half>, std::uint64_t>, CachedPlan> chosen_;  // by bytes, of an all-reduce or half
  std::map<Plan, std::shared_ptr<const Plan>> plans_;                           // each once
  std::map<std::tuple<const Plan*, std::uint64_t, std::uint64_t>, std::shared_ptr<const Layout>>
      layouts_;                                                                       // turn, bytes
  std::map<std::vector<std::uint64_t>, std::shared_ptr<const Layout>> blockLayouts_;  // by size of each rank's block
  bool open_ = false;
  bool running_ = false;
};

}  // namespace fairring
