// Sums and copies of a slice's memory, and the jobs that do them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exchange/job.h"
#include "kernels/reduce.h"

namespace fairring {

struct Copy {
  std::byte* to;
  const std::byte* from;
  std::uint64_t bytes;
};

struct Sum {  // out = its inputs, reduced
  Reduction reduction;
  std::byte* out;
  std::uint64_t elements;
  std::size_t firstInput = 0;  // its inputs begin there among all inputs
  std::size_t inputs = 0;
};

// Sums in sequence; a later one may use the result of an earlier one. Their inputs stand in one list, since there may
// be a sum for each of a thousand small tensors.
class Sums {
 public:
  void open(const Reduction& reduction, std::byte* out, std::uint64_t elements);
  void add(const Input& input);  // for the sum that was opened last

  bool empty() const { return sums_.empty(); }
  auto begin() const { return sums_.begin(); }
  auto end() const { return sums_.end(); }
  std::span<const Input> inputsOf(const Sum& sum) const {
    return std::span(inputs_).subspan(sum.firstInput, sum.inputs);
  }
  std::uint64_t bytesRead() const;
  // Computes that many bytes of input or a little more, from where it stopped before. True while there is more to do.
  bool runSome(std::uint64_t bytes);

 private:
  std::vector<Sum> sums_;
  std::vector<Input> inputs_;
  std::size_t current_ = 0;
};

Job jobOf(Sums sums);
// streams: by streaming stores.
Job jobOf(std::vector<Copy> copies, bool streams = false);

}  // namespace fairring
