#include "exchange/row_sums.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "plan/grain.h"
#include "plan/topology.h"

namespace fairring {

namespace {

void combine(const Reduction& reduction, std::byte* out, const std::vector<Input>& inputs, std::uint64_t bytes) {
  const Input& first = inputs.front();
  if (inputs.size() == 1 && first.scale == 1.0 && reduction.divisor == 1) {
    std::memcpy(out, first.data, bytes);
  } else {
    reduce(reduction, out, inputs, bytes / bytesOf(reduction.dtype));
  }
}

// Walks through one sum by stretches in which the same inputs have the rows.
class Sweep {
 public:
  explicit Sweep(const RowSum& sum) : sum_(sum), at_(sum.range.begin), out_(sum.out) {
    for (const RowInput& input : sum.inputs) next_.push_back(input.data);
  }

  bool atEnd() const { return at_ >= sum_.range.end; }

  // One stretch of at most about that many bytes of input; returns how many it had.
  std::uint64_t advance(std::uint64_t budget) {
    const std::uint64_t end = stretchEnd();
    const std::size_t inputs = present_.size();
    if (inputs == 0) {
      if (!sum_.packed) out_ += end - at_;
      at_ = end;
      return 0;
    }
    const std::uint64_t unit = bytesOf(sum_.reduction.dtype);
    const std::uint64_t bytes = std::min(end - at_, std::max(budget / inputs / unit, std::uint64_t{1}) * unit);
    add(bytes);
    at_ += bytes;
    out_ += bytes;
    for (const std::size_t i : present_) next_[i] += bytes;
    return bytes * inputs;
  }

 private:
  // Finds which inputs have rows from here on, and returns the place up to which that does not change.
  std::uint64_t stretchEnd() {
    const std::uint64_t rowBytes = sum_.inputs.front().rowSet->rowBytes();
    const std::uint64_t row = at_ / rowBytes;
    std::uint64_t end = ceilOf(sum_.range.end, rowBytes);
    present_.clear();
    for (std::size_t i = 0; i < next_.size(); ++i) {
      const RowSet::Stretch stretch = sum_.inputs[i].rowSet->stretchFrom(row);
      if (stretch.here) present_.push_back(i);
      end = std::min(end, stretch.end);
    }
    return std::min(end * rowBytes, sum_.range.end);
  }

  Input inputOf(std::size_t index) const { return {next_[index], sum_.inputs[index].scale}; }

  void add(std::uint64_t bytes) {
    if (sum_.groups > 0) return addByGroup(bytes);
    inputs_.clear();
    for (const std::size_t index : present_) inputs_.push_back(inputOf(index));
    combine(sum_.reduction, out_, inputs_, bytes);
  }

  // Adds only those of each group that are there.
  void addByGroup(std::uint64_t bytes) {
    Reduction partial = sum_.reduction;
    partial.divisor = 1;
    std::vector<std::vector<std::byte>> sums;
    auto next = present_.begin();
    for (int group = 0; group < sum_.groups && next != present_.end(); ++group) {
      const auto last = static_cast<std::size_t>(boundsOf(group, sum_.groups, static_cast<int>(next_.size())).last);
      inputs_.clear();
      for (; next != present_.end() && *next < last; ++next) inputs_.push_back(inputOf(*next));
      if (!inputs_.empty()) combine(partial, sums.emplace_back(bytes).data(), inputs_, bytes);
    }
    inputs_.clear();
    for (const auto& sum : sums) inputs_.push_back({sum.data()});
    combine(sum_.reduction, out_, inputs_, bytes);
  }

  const RowSum& sum_;
  std::uint64_t at_;
  std::byte* out_;
  std::vector<const std::byte*> next_;  // of each input
  std::vector<std::size_t> present_;
  std::vector<Input> inputs_;
};

struct Progress {
  explicit Progress(std::vector<RowSum> all) : sums(std::move(all)) {
    sweeps.reserve(sums.size());
    for (const RowSum& sum : sums) sweeps.emplace_back(sum);
  }

  // True while there is more to do. A stretch has a cost of its own, however short it is.
  bool runPiece() {
    constexpr std::uint64_t kStretchBytes = 512;
    std::uint64_t budget = kPieceBytes;
    while (current < sweeps.size() && budget > 0) {
      Sweep& sweep = sweeps[current];
      while (!sweep.atEnd() && budget > 0) budget -= std::min(budget, sweep.advance(budget) + kStretchBytes);
      if (sweep.atEnd()) ++current;
    }
    return current < sweeps.size();
  }

  const std::vector<RowSum> sums;
  std::vector<Sweep> sweeps;  // of each of them
  std::size_t current = 0;
};

}  // namespace

Job jobOf(std::vector<RowSum> sums) {
  if (sums.empty()) return {};
  return Job([progress = std::make_shared<Progress>(std::move(sums))] { return progress->runPiece(); });
}

}  // namespace fairring
