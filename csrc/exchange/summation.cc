#include "exchange/summation.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace fairring {

namespace {

constexpr std::uint64_t kAtOnceBytes = 64 << 10;

struct Progress {
  std::vector<Sum> sums;
  std::function<void()> done;
  std::size_t current = 0;
};

void run(const Sum& sum, std::uint64_t elements) {
  Reduction reduction = sum.reduction;
  if (sum.partial) reduction.divisor = 1;
  const Input& first = sum.inputs.front();
  if (sum.inputs.size() == 1 && first.scale == 1.0 && reduction.divisor == 1) {
    if (sum.out != first.data) std::memcpy(sum.out, first.data, elements * bytesOf(reduction.dtype));
    return;
  }
  reduce(reduction, sum.out, sum.inputs, elements);
}

std::uint64_t bytesRead(const std::vector<Sum>& sums) {
  std::uint64_t bytes = 0;
  for (const Sum& sum : sums) bytes += sum.elements * bytesOf(sum.reduction.dtype) * sum.inputs.size();
  return bytes;
}

void skip(Sum& sum, std::uint64_t elements) {
  const std::size_t bytes = elements * bytesOf(sum.reduction.dtype);
  sum.out += bytes;
  for (Input& input : sum.inputs) input.data = static_cast<const std::byte*>(input.data) + bytes;
  sum.elements -= elements;
}

// True while there is more to do.
bool runPiece(Progress& progress) {
  std::uint64_t budget = kPieceBytes;
  while (progress.current < progress.sums.size()) {
    Sum& sum = progress.sums[progress.current];
    const std::uint64_t bytesPerElement = bytesOf(sum.reduction.dtype) * sum.inputs.size();
    const std::uint64_t elements = std::min(sum.elements, std::max<std::uint64_t>(budget / bytesPerElement, 1));
    run(sum, elements);
    skip(sum, elements);
    if (sum.elements == 0) ++progress.current;
    budget -= std::min(budget, elements * bytesPerElement);
    if (budget == 0) break;
  }
  return progress.current < progress.sums.size();
}

}  // namespace

void sumInPieces(Loop& loop, const void* owner, std::uint64_t urgency, std::vector<Sum> sums,
                 std::function<void()> done) {
  if (bytesRead(sums) <= kAtOnceBytes) {
    for (const Sum& sum : sums) run(sum, sum.elements);
    return done();
  }
  auto progress = std::make_shared<Progress>(Progress{std::move(sums), std::move(done)});
  loop.work(owner, urgency, [progress] {
    if (runPiece(*progress)) return true;
    progress->done();
    return false;
  });
}

void runInPieces(Loop& loop, const void* owner, std::uint64_t urgency, Pieces pieces, std::function<void()> done) {
  loop.work(owner, urgency, [pieces = std::move(pieces), next = std::size_t{0}, done = std::move(done)]() mutable {
    if (next < pieces.size()) pieces[next++]();
    if (next < pieces.size()) return true;
    done();
    return false;
  });
}

}  // namespace fairring
