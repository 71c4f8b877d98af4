#include "engine/slicing.h"

#include <utility>

#include "exchange/compressed_body.h"
#include "plan/layout.h"

namespace fairring {

Slicing::Slicing(const Planner& planner, int rank, SliceBodies bodies)
    : planner_(planner), rank_(rank), bodies_(std::move(bodies)), plans_(planner, rank) {}

CallPart Slicing::of(const Call& call) {
  Packing packing = Packing::of(call);
  const PlanCache::CachedPlan& chosen = plans_.of(call.pattern, packing.bytes());
  CallPart part = packed(call.pattern, call.root, std::move(packing), chosen, bodyOf(call));
  if (call.siteFormat == nullptr || planner_.topology().sites() == 1) return part;
  // Every plan cuts between the format's blocks alone, so all plans have the same blocks.
  const std::uint64_t together = call.siteFormat->grainsTogether();
  part.chosen.sliceBytes =
      std::max(part.chosen.sliceBytes / together / kGrainBytes, std::uint64_t{1}) * together * kGrainBytes;
  part.cut = [this, chosen = part.chosen, together, cut = std::move(part.cut)](Slice& slice, const Range& stretch) {
    cut(slice, stretch);
    const auto units = plans_.layoutOf(chosen, ceilOf(stretch.size(), together));
    slice.layout = std::make_shared<const Layout>(inBytes(*units, together, stretch.size()));
  };
  return part;
}

CallPart Slicing::ofTensors(Pattern pattern, Packing packing) {
  const PlanCache::CachedPlan& chosen = plans_.of(pattern, packing.bytes());
  return packed(pattern, kNoRoot, std::move(packing), chosen, bodies_.dense);
}

CallPart Slicing::ofTensors(const PlanChoice& choice, Packing packing, std::shared_ptr<const SliceBody> body) {
  const PlanCache::CachedPlan chosen = plans_.of(choice);
  return packed(Pattern::AllReduce, kNoRoot, std::move(packing), chosen, std::move(body));
}

CallPart Slicing::packed(Pattern pattern, int root, Packing packing, const PlanCache::CachedPlan& chosen,
                         std::shared_ptr<const SliceBody> body) {
  const std::uint64_t bytes = packing.bytes();
  return {.pattern = pattern,
          .bytes = bytes,
          .chosen = chosen,
          .cut = [this, isByRank = isByRank(pattern), root, packing = std::move(packing), chosen,
                  body = std::move(body)](Slice& slice, const Range& stretch) {
            slice.plan = chosen.plan;
            slice.body = body;
            if (!isByRank) {
              slice.layout = plans_.layoutOf(chosen, stretch.size(), root);
              slice.portions = packing.cut(stretch);
              return;
            }
            const std::vector<std::uint64_t> sizes = packing.bytesOfRows(stretch);
            const Blocks& blocks = planner_.blocks();
            slice.layout = plans_.layoutOfBlocks(sizes, root);
            slice.portions = packing.cut(stretch, blocks.order(), blockOffsets(blocks, sizes));
          }};
}

CallPart Slicing::ofCells(CellSizes sizes, CellMemory memory) {
  const std::uint64_t bytes = sizes.largest();
  const PlanCache::CachedPlan chosen = plans_.of(planner_.chooseAllToAll(bytes));
  const auto cells =
      std::make_shared<const Cells>(planner_.leveled(), planner_.blocks(), rank_, std::move(sizes), std::move(memory));
  return {.pattern = Pattern::AllToAll,
          .bytes = bytes,
          .chosen = chosen,
          .cut = [this, cells, plan = chosen.plan](Slice& slice, const Range& stretch) {
            slice.plan = plan;
            slice.body = bodies_.ofCells(cells, stretch);
            slice.layout = plans_.layoutOfCells();
          }};
}

std::shared_ptr<const SliceBody> Slicing::bodyOf(const Call& call) const {
  if (call.siteFormat == nullptr || planner_.topology().sites() == 1) return bodies_.dense;
  return std::make_shared<const CompressedBody>(*call.siteFormat, call.residual, rounding_);
}

}  // namespace fairring
