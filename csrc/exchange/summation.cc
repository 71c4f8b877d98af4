#include "exchange/summation.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace fairring {

namespace {

// Bytes read in one piece: some tens of microseconds, so that a message never waits longer than that.
constexpr std::uint64_t kPieceBytes = 512 << 10;

struct Progress {
  Reduction reduction;
  std::vector<Sum> sums;
  std::function<void()> done;
  std::size_t current = 0;
};

void run(Reduction reduction, const Sum& sum, std::uint64_t elements) {
  if (sum.partial) reduction.divisor = 1;
  const Input& first = sum.inputs.front();
  if (sum.inputs.size() == 1 && first.scale == 1.0 && reduction.divisor == 1) {
    if (sum.out != first.data) std::memcpy(sum.out, first.data, elements * bytesOf(reduction.dtype));
    return;
  }
  reduce(reduction, sum.out, sum.inputs, elements);
}

void skip(Sum& sum, std::uint64_t elements, std::size_t elementBytes) {
  const std::size_t bytes = elements * elementBytes;
  sum.out += bytes;
  for (Input& input : sum.inputs) input.data = static_cast<const std::byte*>(input.data) + bytes;
  sum.elements -= elements;
}

// True while there is more to do.
bool runPiece(Progress& progress) {
  const std::size_t elementBytes = bytesOf(progress.reduction.dtype);
  std::uint64_t budget = kPieceBytes;
  while (progress.current < progress.sums.size()) {
    Sum& sum = progress.sums[progress.current];
    const std::uint64_t bytesPerElement = elementBytes * sum.inputs.size();
    const std::uint64_t elements = std::min(sum.elements, std::max<std::uint64_t>(budget / bytesPerElement, 1));
    run(progress.reduction, sum, elements);
    skip(sum, elements, elementBytes);
    if (sum.elements == 0) ++progress.current;
    budget -= std::min(budget, elements * bytesPerElement);
    if (budget == 0) break;
  }
  return progress.current < progress.sums.size();
}

}  // namespace

void sumInPieces(Loop& loop, const void* owner, std::uint64_t urgency, const Reduction& reduction,
                 std::vector<Sum> sums, std::function<void()> done) {
  auto progress = std::make_shared<Progress>(Progress{reduction, std::move(sums), std::move(done)});
  loop.work(owner, urgency, [progress] {
    if (runPiece(*progress)) return true;
    progress->done();
    return false;
  });
}

}  // namespace fairring
