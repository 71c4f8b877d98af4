// Sums and copies, done piece by piece where they are too long for one turn of the loop, at once where they are short.
// The owner of the loop's progress runs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/loop.h"
#include "kernels/reduce.h"

namespace fairring {

// Bytes read in one piece: some tens of microseconds, so that a message never waits longer than that.
constexpr std::uint64_t kPieceBytes = 512 << 10;

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;
};

struct Sum {  // out = its inputs, reduced
  Reduction reduction;
  std::byte* out;
  std::uint64_t elements;
  std::size_t firstInput = 0;  // of its inputs among those of all
  std::size_t inputs = 0;
};

// One after the other; a later one may go on with what an earlier one has made. Their inputs stand in one list, since
// there may be a sum for each of a thousand small tensors.
class Sums {
 public:
  void open(const Reduction& reduction, std::byte* out, std::uint64_t elements);
  void add(const Input& input);  // of the sum that was opened last

  bool empty() const { return sums_.empty(); }
  auto begin() const { return sums_.begin(); }
  auto end() const { return sums_.end(); }
  std::span<const Input> inputsOf(const Sum& sum) const {
    return std::span(inputs_).subspan(sum.firstInput, sum.inputs);
  }
  std::uint64_t bytesRead() const;
  // Computes so many bytes of input or a little more, from where it stopped before. True while there is more to do.
  bool runSome(std::uint64_t bytes);

 private:
  std::vector<Sum> sums_;
  std::vector<Input> inputs_;
  std::size_t current_ = 0;
};

// Puts the sums, or copies, on the loop as one job of this owner; `done` follows the last piece. Of less than a few
// microseconds all of it, `done` included, is over when this returns: a job would take longer than its work.
void sumInPieces(Loop& loop, const void* owner, std::uint64_t urgency, Sums sums, std::function<void()> done);
void copyInPieces(Loop& loop, const void* owner, std::uint64_t urgency, std::vector<Copy> copies,
                  std::function<void()> done);

// Likewise any such work, cut already: each piece is some tens of microseconds.
using Pieces = std::vector<std::function<void()>>;
void runInPieces(Loop& loop, const void* owner, std::uint64_t urgency, Pieces pieces, std::function<void()> done);

}  // namespace fairring
