// The pipeline's way with sparse calls: their parts one after the other, each of a size that the one before tells.
#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/pipeline.h"
#include "engine/sparse_call.h"
#include "exchange/sparse_body.h"

namespace fairring {

namespace {

// The body of slices whose rows travel as a dense tensor. Each rank lays out its own among zeros when a slice is about
// to be read.
class BlockBody final : public DenseBody {
 public:
  explicit BlockBody(std::shared_ptr<SparseCall> sparse) : sparse_(std::move(sparse)) {}

  Job prepare(const Slice& slice) const override {
    const std::uint64_t end = slice.begin + slice.layout->elements;
    Pieces pieces;
    for (std::uint64_t at = slice.begin; at < end; at += kPieceBytes) {
      const Range bytes{at, std::min(at + kPieceBytes, end)};
      pieces.emplace_back([sparse = sparse_, bytes] { sparse->layOut(bytes); });
    }
    return jobOf(std::move(pieces));
  }

 private:
  const std::shared_ptr<SparseCall> sparse_;
};

}  // namespace

// A sparse call has three parts. They take their places now, the same on all ranks, though the size of the later ones
// is not known yet. Those are bulk: behind them all of bulk waits for the first, which waits for no bulk but what came
// before it. If the first has told all keys, the second gives up its place, on all ranks.
void Pipeline::submitSparse(Call call, std::uint64_t signature) {
  std::optional<SparseOperand> operand = std::exchange(call.sparse, std::nullopt);
  assert(operand.has_value());
  const auto sparse = std::make_shared<SparseCall>(std::move(*operand), rank_, planner_.topology().world());
  const auto partOf = [&call](std::vector<Operand> operands) {
    return Call{.operands = std::move(operands), .signature = call.signature, .refused = call.refused, .done = nullptr};
  };
  const Operand counts = sparse->counts();
  Packing packing({counts});
  const CachedPlan& chosen = plans_.of(Pattern::AllReduce, packing.bytes());
  const auto first = enqueue(partOf({counts}), std::move(packing), signature, chosen);
  const auto second = enqueueUnsized(partOf({}), signature);
  const auto third = enqueueUnsized(std::move(call), signature);
  first->learned = [this, sparse, second, third](std::uint32_t refused) {
    third->refused = refused;
    if (sparse->hasKeys()) {
      drop(second);
      return sizeValues(*third, sparse);
    }
    const Operand keys = sparse->keys(planner_.keyForm(sparse->space(), sparse->rowsByRank()));
    size(*second, keys, planner_.choose(Packing({keys}).bytes(), 1));
  };
  second->learned = [this, sparse, third](std::uint32_t refused) {
    if (refused != 0) third->refused = refused;
    sizeValues(*third, sparse);
  };
  run();
}

void Pipeline::drop(const std::shared_ptr<Pending>& call) {
  assert(!call->sized);
  calls_.erase(std::ranges::find(calls_, call));
  auto& uncut = queueOf(call->queue).uncut;
  uncut.erase(std::ranges::find(uncut, call));
}

void Pipeline::sizeValues(Pending& values, const std::shared_ptr<SparseCall>& sparse) {
  if (sparse->isBlock()) {
    const Operand block = sparse->block();
    values.body = std::make_shared<const BlockBody>(sparse);
    return size(values, block, planner_.choose(Packing({block}).bytes(), 1));
  }
  const auto rows = sparse->rows(planner_.leveled());
  const Operand packed = sparse->values(*rows);
  const std::uint64_t most = rows->most(planner_.leveled().levels().back());
  values.body = std::make_shared<const SparseBody>(rows);
  size(values, packed, planner_.chooseSparse(Packing({packed}).bytes(), most));
}

void Pipeline::size(Pending& pending, Operand operand, const PlanChoice& choice) {
  pending.call.operands = {operand};
  pending.packing = Packing(pending.call.operands);
  pending.bytes = pending.packing.bytes();
  pending.chosen = plans_.of(choice, planner_.turns(choice.plan));
  pending.sized = true;
}

}  // namespace fairring
