// How one rank cuts calls into slices: by which plan, into which stretches, and with which layouts and bodies. All
// ranks cut alike. The pipeline has one for the host's tensors, a device's chain another. One thread at a time may use
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/call.h"
#include "engine/packing.h"
#include "engine/plan_cache.h"
#include "exchange/cells.h"
#include "exchange/slice.h"
#include "exchange/traffic.h"
#include "plan/planner.h"

namespace fairring {

// What is cut: a call, or one of its parts (call_in_parts.h).
struct CallPart {
  Pattern pattern = Pattern::AllReduce;
  // Of the longest row (packing.h), or of an all-to-all's largest cell.
  std::uint64_t bytes = 0;
  PlanCache::CachedPlan chosen;
  // Makes this stretch of each row, or cell, the content of a slice that has its identity: plan, layout, body,
  // portions. Null: the size is not known yet, or all of it is cut. Ends before the Slicing does.
  std::function<void(Slice& slice, const Range& stretch)> cut;

  // The stretch of the slice that begins there.
  Range stretchFrom(std::uint64_t begin) const { return {begin, std::min(begin + chosen.sliceBytes, bytes)}; }
};

// The bodies of dense slices and of an all-to-all's. A simulation has others, which count the cost of their work.
struct SliceBodies {
  std::shared_ptr<const SliceBody> dense = denseBody();
  std::function<std::shared_ptr<const SliceBody>(std::shared_ptr<const Cells>, const Range& stretch)> ofCells =
      bodyOfCells;
};

class Slicing {
 public:
  Slicing(const Planner& planner, int rank, SliceBodies bodies = {});
  Slicing(const Slicing&) = delete;
  Slicing& operator=(const Slicing&) = delete;

  // A call in a single part.
  CallPart of(const Call& call);
  // Dense tensors by the plan for their size.
  CallPart ofTensors(Pattern pattern, Packing packing);
  // An all-reduce by a plan that depends on more than the size.
  CallPart ofTensors(const PlanChoice& choice, Packing packing, std::shared_ptr<const SliceBody> body);
  CallPart ofCells(CellSizes sizes, CellMemory memory);

  const Planner& planner() const { return planner_; }
  // Of this rank's contributions to sums that crossed between sites in a format.
  const Rounding& rounding() const { return *rounding_; }
  const std::shared_ptr<const SliceBody>& dense() const { return bodies_.dense; }

 private:
  static constexpr int kNoRoot = -1;

  CallPart packed(Pattern pattern, int root, Packing packing, const PlanCache::CachedPlan& chosen,
                  std::shared_ptr<const SliceBody> body);
  std::shared_ptr<const SliceBody> bodyOf(const Call& call) const;

  const Planner& planner_;
  const int rank_;
  const SliceBodies bodies_;
  const std::shared_ptr<Rounding> rounding_ = std::make_shared<Rounding>();
  PlanCache plans_;
};

}  // namespace fairring
