// Stands in for the exchange of level 0 (exchange/shared_memory.h) where that does not scale: it takes descriptors and
// mappings of the process, some twenty for each rank. It takes the steps that one takes, waits for whom it waits for,
// and has the same costs; of images it moves what their bodies do. One thread; on the loop only, but for the board.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "base/loop.h"
#include "exchange/exchange.h"
#include "exchange/slice_body.h"

namespace fairring::simulation {

// What the ranks of a machine know of one another: how far each has come with its slices.
class MachineBoard {
 public:
  enum class Flag { Filled, Summed, Finished };

  explicit MachineBoard(std::size_t ranks) : notify_(ranks), ranks_(ranks) {}

  void onChange(std::size_t index, std::function<void()> notify) { notify_[index] = std::move(notify); }
  void raise(std::size_t index, Flag flag, const Slice& slice);
  bool has(std::size_t index, Flag flag, SliceId slice) const;
  bool haveAll(Flag flag, SliceId slice) const;
  const std::byte* image(std::size_t index, SliceId slice) const;  // of a rank that has raised a flag
  void forget(SliceId slice);                                      // by each rank, when it is through with it

 private:
  struct Marks {
    std::vector<std::uint8_t> raised;  // by rank, a bit for each flag
    std::vector<const std::byte*> images;
    std::size_t gone = 0;
  };
  std::vector<std::function<void()>> notify_;
  std::size_t ranks_;
  std::map<SliceId, Marks> marks_;
};

class MachineStandIn final : public Exchange {
 public:
  // ranks: of the machine, ascending; index: of this one among them.
  MachineStandIn(Loop& loop, MachineBoard& board, std::vector<int> ranks, std::size_t index);
  ~MachineStandIn() override;

  void admit(const std::shared_ptr<Slice>& slice) override;
  void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) override;
  std::set<int> missing() const override;
  using Exchange::needs;
  bool needs(int, const Watermarks&) const override { return false; }
  void leave(int) override {}
  void stop() override;
  void advanceAll();  // some other rank has raised a flag
  bool isAtRest() const { return slices_.empty(); }

 private:
  enum class Phase { Admitted, Filling, Filled, Combining, Gathering, Gathered };
  struct InFlight {
    std::shared_ptr<Slice> slice;
    Phase phase = Phase::Admitted;
    std::size_t step = 0;
    Events events;
    std::vector<std::size_t> ungathered;
  };

  void run(const InFlight& state, Job job, void (MachineStandIn::*then)(SliceId));
  void filled(SliceId id);
  void isThrough(SliceId id);
  void gather(InFlight& state);
  void deliver(const Slice& slice, std::size_t index) const;
  void advance(SliceId id);

  Loop& loop_;
  MachineBoard& board_;
  const std::vector<int> ranks_;
  const std::size_t index_;
  std::map<SliceId, InFlight> slices_;
  bool stopped_ = false;
};

}  // namespace fairring::simulation
