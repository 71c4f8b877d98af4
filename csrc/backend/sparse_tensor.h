// A sparse COO tensor as rows with keys, and back. A key is the row's place among all rows that the tensor could have,
// its sparse dimensions taken as one; so the order of keys is that of a coalesced tensor in torch. Any thread; tensors
// are read and written without autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/reduce.h"

namespace fairring {

// Whether the tensor is in COO form, on the CPU or a CUDA device.
bool isSparse(const at::Tensor& tensor);

struct LocalRows {                  // of one rank
  std::vector<std::uint64_t> keys;  // each once, ascending
  at::Tensor values;                // of these, packed

  // Duplicate rows of the tensor are summed in their order there, and rounded once. The tensor must be on the CPU.
  // Throws c10::Error if an index lies outside of it.
  static LocalRows of(const at::Tensor& tensor, const Reduction& reduction);
};

// Throws c10::Error if there are more than can be counted.
std::uint64_t possibleRows(const at::Tensor& tensor);
std::uint64_t rowElements(const at::Tensor& tensor);  // complex ones count twice

// Memory of the host for that many rows of it. No dispatch to Python.
at::Tensor newRows(const at::Tensor& tensor, std::uint64_t rows);
// Its indices for rows with these keys, in memory of the host. No dispatch to Python.
at::Tensor indicesOf(const at::Tensor& tensor, std::span<const std::uint64_t> keys);
// The tensor becomes these rows, coalesced; if it is on a device, on the current stream, for which the host waits.
void replaceRows(const at::Tensor& tensor, const at::Tensor& indices, const at::Tensor& values);

}  // namespace fairring
