#include "exchange/summation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/stream_copy.h"

namespace fairring {

namespace {

constexpr std::uint64_t kAtOnceBytes = 64 << 10;

void run(const Sum& sum, std::span<const Input> inputs, std::uint64_t elements) {
  const Input& first = inputs.front();
  if (inputs.size() == 1 && first.scale == 1.0 && sum.reduction.divisor == 1) {
    if (sum.out != first.data) std::memcpy(sum.out, first.data, elements * bytesOf(sum.reduction.dtype));
    return;
  }
  reduce(sum.reduction, sum.out, inputs, elements);
}

struct Copies {  // as Sums are, in the order given
  std::vector<Copy> all;
  bool streams = false;
  std::size_t current = 0;

  std::uint64_t bytesRead() const {
    std::uint64_t bytes = 0;
    for (const Copy& copy : all) bytes += copy.bytes;
    return bytes;
  }

  bool runSome(std::uint64_t bytes) {
    while (current < all.size()) {
      Copy& copy = all[current];
      const std::uint64_t now = std::min(copy.bytes, bytes);
      streams ? streamCopy(copy.to, copy.from, now) : static_cast<void>(std::memcpy(copy.to, copy.from, now));
      copy = {copy.to + now, copy.from + now, copy.bytes - now};
      if (copy.bytes == 0) ++current;
      bytes -= now;
      if (bytes == 0) break;
    }
    return current < all.size();
  }
};

template <class Work>  // Sums, or Copies
Job jobOfWork(Work work) {
  const std::uint64_t bytes = work.bytesRead();
  if (bytes == 0) return {};
  auto piece = [work = std::move(work)]() mutable { return work.runSome(kPieceBytes); };
  // A job of one or two pieces is over before a helper is awake.
  return bytes > 2 * kPieceBytes ? Job::shared(std::move(piece)) : Job(std::move(piece), bytes <= kAtOnceBytes);
}

}  // namespace

void Sums::open(const Reduction& reduction, std::byte* out, std::uint64_t elements) {
  sums_.push_back({.reduction = reduction, .out = out, .elements = elements, .firstInput = inputs_.size()});
}

void Sums::add(const Input& input) {
  inputs_.push_back(input);
  ++sums_.back().inputs;
}

std::uint64_t Sums::bytesRead() const {
  std::uint64_t bytes = 0;
  for (const Sum& sum : sums_) bytes += sum.elements * bytesOf(sum.reduction.dtype) * sum.inputs;
  return bytes;
}

bool Sums::runSome(std::uint64_t bytes) {
  while (current_ < sums_.size()) {
    Sum& sum = sums_[current_];
    const std::span<Input> inputs = std::span(inputs_).subspan(sum.firstInput, sum.inputs);
    const std::uint64_t elementBytes = bytesOf(sum.reduction.dtype);
    const std::uint64_t bytesPerElement = elementBytes * inputs.size();
    const std::uint64_t elements = std::min(sum.elements, std::max<std::uint64_t>(bytes / bytesPerElement, 1));
    run(sum, inputs, elements);
    sum.out += elements * elementBytes;
    for (Input& input : inputs) input.data = static_cast<const std::byte*>(input.data) + elements * elementBytes;
    sum.elements -= elements;
    if (sum.elements == 0) ++current_;
    bytes -= std::min(bytes, elements * bytesPerElement);
    if (bytes == 0) break;
  }
  return current_ < sums_.size();
}

Job jobOf(Sums sums) { return jobOfWork(std::move(sums)); }
Job jobOf(std::vector<Copy> copies, bool streams) {
  return jobOfWork(Copies{.all = std::move(copies), .streams = streams});
}

}  // namespace fairring
