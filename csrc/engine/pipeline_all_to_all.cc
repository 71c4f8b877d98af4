// The pipeline's way with all-to-alls: two parts tell all ranks the sizes, of which the second is mostly left out, and
// the third carries the cells. They take their places as the parts of a sparse call do (pipeline_sparse.cc).
#include <utility>

#include "engine/all_to_all_call.h"
#include "engine/pipeline.h"

namespace fairring {

void Pipeline::submitAllToAll(Call call, std::uint64_t signature) {
  const auto exchange = std::make_shared<AllToAllCall>(std::move(call.cells), rank_);
  const auto gathering = [&call](BlockRows blocks) {
    return Call{.pattern = Pattern::AllGather,
                .blocks = std::move(blocks),
                .signature = call.signature,
                .refused = call.refused,
                .done = nullptr};
  };
  Call even = gathering(exchange->evenSizes());
  Packing packing = Packing::ofBlocks(even.blocks);
  const CachedPlan& chosen = plans_.of(Pattern::AllGather, packing.bytes());
  const auto first = enqueue(std::move(even), std::move(packing), signature, chosen);
  const auto second = enqueueUnsized(gathering({}), signature);
  const auto third = enqueueUnsized(std::move(call), signature);
  first->learned = [this, exchange, second, third](std::uint32_t refused) {
    third->refused = refused;
    if (exchange->isEven()) {
      drop(second);
      return sizeCells(*third, *exchange);
    }
    second->call.blocks = exchange->sizes();
    second->packing = Packing::ofBlocks(second->call.blocks);
    second->bytes = second->packing.bytes();
    second->chosen = plans_.of(Pattern::AllGather, second->bytes);
    second->sized = true;
  };
  second->learned = [this, exchange, third](std::uint32_t refused) {
    if (refused != 0) third->refused = refused;
    sizeCells(*third, *exchange);
  };
  run();
}

void Pipeline::sizeCells(Pending& pending, const AllToAllCall& exchange) {
  if (!pending.call.refused) pending.call.refused = exchange.unfit();
  const CellSizes sizes = exchange.cellSizes();
  pending.bytes = sizes.largest();
  pending.chosen = plans_.of(planner_.chooseAllToAll(pending.bytes));
  pending.cells = std::make_shared<const Cells>(planner_.leveled(), planner_.blocks(), rank_, sizes,
                                                exchange.memory(static_cast<bool>(pending.call.refused)));
  pending.sized = true;
}

}  // namespace fairring
