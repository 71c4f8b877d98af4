#include "engine/sparse_call.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "exchange/sparse_body.h"
#include "kernels/key_bits.h"
#include "plan/grain.h"

namespace fairring {

namespace {

// The size of the first part, over all ranks. Keys of small calls fit into it and need no part of their own; all other
// calls lose no more than some tens of microseconds.
constexpr std::size_t kFirstBytes = 8 << 10;

// Short ones without a call.
void copyRow(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  switch (bytes) {
    case 4: std::memcpy(to, from, 4); return;
    case 8: std::memcpy(to, from, 8); return;
    default: std::memcpy(to, from, bytes);
  }
}

// The body of slices whose rows travel as a dense tensor. Each rank lays out its own among zeros when a slice is about
// to be read.
class BlockBody final : public DenseBody {
 public:
  explicit BlockBody(std::shared_ptr<const SparseCall> sparse) : sparse_(std::move(sparse)) {}

  Job prepare(const Slice& slice) const override {
    const std::uint64_t end = slice.begin + slice.layout->bytes;
    Pieces pieces;
    for (std::uint64_t at = slice.begin; at < end; at += kPieceBytes) {
      const Range bytes{at, std::min(at + kPieceBytes, end)};
      pieces.emplace_back([sparse = sparse_, bytes] { sparse->layOut(bytes); });
    }
    return jobOf(std::move(pieces));
  }

 private:
  const std::shared_ptr<const SparseCall> sparse_;
};

}  // namespace

SparseCall::SparseCall(SparseOperand operand, int rank, int world)
    : operand_(std::move(operand)),
      rank_(static_cast<std::size_t>(rank)),
      world_(static_cast<std::size_t>(world)),
      slotWords_(std::max<std::size_t>(kFirstBytes / sizeof(std::uint64_t) / world_, 1)),
      counts_(world_ * slotWords_) {}

std::uint64_t SparseCall::keysBesideCount() const {
  return (slotWords_ - 1) * sizeof(std::uint64_t) / space().keyBytes();
}

CallPart SparseCall::first(Slicing& slicing) {
  std::uint64_t* const slot = &counts_[rank_ * slotWords_];
  *slot = operand_.keys.size();
  if (*slot <= keysBesideCount()) writeOwnKeys(reinterpret_cast<std::byte*>(slot + 1));
  const Operand counts{counts_.data(), counts_.size(), {.dtype = DType::UInt64, .op = Op::BitOr}};
  return slicing.ofTensors(Pattern::AllReduce, Packing({counts}));
}

std::optional<CallPart> SparseCall::second(Slicing& slicing) {
  if (hasKeys()) return std::nullopt;
  const Planner& planner = slicing.planner();
  Packing packing({keys(planner.keyForm(space(), rowsByRank()))});
  const PlanChoice choice = planner.choose(packing.bytes());
  return slicing.ofTensors(choice, std::move(packing), slicing.dense());
}

CallPart SparseCall::last(Slicing& slicing, Error&) {
  return form_ == KeyForm::BitsOfAll ? block(slicing) : rows(slicing);
}

std::vector<std::uint64_t> SparseCall::rowsByRank() const {
  std::vector<std::uint64_t> rows(world_);
  for (std::size_t rank = 0; rank < world_; ++rank) rows[rank] = counts_[rank * slotWords_];
  return rows;
}

std::uint64_t SparseCall::rowsBefore(std::size_t rank) const {
  const std::vector<std::uint64_t> rows = rowsByRank();
  return std::reduce(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rank));
}

bool SparseCall::hasKeys() const { return std::ranges::max(rowsByRank()) <= keysBesideCount(); }

void SparseCall::writeOwnKeys(std::byte* to) const {
  const std::uint64_t keyBytes = space().keyBytes();
  for (const std::uint64_t key : operand_.keys) {
    std::memcpy(to, &key, keyBytes);  // the lower half, or all of it
    to += keyBytes;
  }
}

Operand SparseCall::keys(KeyForm form) {
  form_ = form;
  if (form != KeyForm::Lists) {
    const bool each = form == KeyForm::BitsByRank;
    const std::uint64_t words = space().words();
    keys_.resize(each ? words * world_ : words);
    const auto own = std::span(keys_).subspan(each ? rank_ * words : 0, words);
    setKeys(own, operand_.keys);
    if (!each) own_ = keys_;
    return {keys_.data(), keys_.size(), {.dtype = DType::UInt64, .op = Op::BitOr}};
  }
  const std::uint64_t all = rowsBefore(world_);
  const bool wide = space().keyBytes() == sizeof(std::uint64_t);
  keys_.resize(wide ? all : (all + 1) / 2);
  writeOwnKeys(reinterpret_cast<std::byte*>(keys_.data()) + rowsBefore(rank_) * space().keyBytes());
  return {keys_.data(), all, {.dtype = wide ? DType::Int64 : DType::Int32}};
}

KeysByRank SparseCall::keysByRank() const {
  KeysByRank keys;
  if (form_ == KeyForm::BitsByRank) {
    const std::uint64_t words = space().words();
    for (std::size_t rank = 0; rank < world_; ++rank)
      keys.bits.push_back(std::span(keys_).subspan(rank * words, words));
    return keys;
  }
  const std::uint64_t keyBytes = space().keyBytes();
  const bool besideCounts = hasKeys();
  const auto* at = reinterpret_cast<const std::byte*>(keys_.data());
  for (std::size_t rank = 0; rank < world_; ++rank) {
    if (besideCounts) at = reinterpret_cast<const std::byte*>(counts_.data() + rank * slotWords_ + 1);
    for (std::uint64_t& key : keys.lists.emplace_back(counts_[rank * slotWords_])) {
      std::memcpy(&key, at, keyBytes);
      at += keyBytes;
    }
  }
  return keys;
}

Operand SparseCall::resultFor(const std::vector<std::uint64_t>& keys) const {
  std::byte* const result = operand_.result ? operand_.result(keys) : nullptr;
  return {result, keys.size() * operand_.rowElements, operand_.reduction};
}

CallPart SparseCall::rows(Slicing& slicing) const {
  const Planner& planner = slicing.planner();
  const auto rows = std::make_shared<const SparseRows>(planner.leveled(), static_cast<int>(rank_), keysByRank(),
                                                       operand_.rowBytes(), operand_.values);
  Packing packing({resultFor(rows->all())});
  const PlanChoice choice = planner.chooseSparse(packing.bytes(), rows->most(planner.leveled().levels().back()));
  return slicing.ofTensors(choice, std::move(packing), std::make_shared<const SparseBody>(rows));
}

CallPart SparseCall::block(Slicing& slicing) {
  const std::vector<std::uint64_t> all = keysIn(keys_);
  KeyBits own(wordsFor(all.size()));
  addPlaces(own, own_, keys_);
  inBlock_ = RowSet(std::move(own), operand_.rowBytes());
  const Operand result = resultFor(all);
  block_ = static_cast<std::byte*>(result.data);
  Packing packing({result});
  const PlanChoice choice = slicing.planner().choose(packing.bytes());
  return slicing.ofTensors(choice, std::move(packing), std::make_shared<const BlockBody>(shared_from_this()));
}

void SparseCall::layOut(const Range& blockBytes) const {
  if (block_ == nullptr || blockBytes.size() == 0) return;
  std::memset(block_ + blockBytes.begin, 0, blockBytes.size());
  const std::uint64_t rowBytes = operand_.rowBytes();
  const std::byte* own = operand_.values + inBlock_.before(blockBytes.begin);
  const std::uint64_t endRow = ceilOf(blockBytes.end, rowBytes);
  inBlock_.eachRow(blockBytes.begin / rowBytes, endRow, [&](std::uint64_t row) {
    const std::uint64_t begin = std::max(row * rowBytes, blockBytes.begin);
    const std::uint64_t bytes = std::min((row + 1) * rowBytes, blockBytes.end) - begin;
    copyRow(block_ + begin, own, bytes);
    own += bytes;
  });
}

}  // namespace fairring
