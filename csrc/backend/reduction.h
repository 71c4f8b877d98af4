// Translates torch's operations and dtypes to ours. An undefined combination is an error that says what to do, alike on
// all ranks, before anything is sent. Pure.
//
// A complex tensor is one of twice as many floats, for the operations that treat both parts alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "engine/call.h"
#include "kernels/reduce.h"

namespace fairring {

const char* name(c10d::ReduceOp::RedOpType op);  // as torch's users write it: "SUM"

std::uint64_t ownElements(const at::Tensor& tensor);
Block bytesBlock(const at::Tensor& tensor);  // of its bytes, for calls that move them and don't look at them

// How a tensor goes into the sum in a group of that many ranks. AVG multiplies floats by 1 / ranks and divides the sum
// of integers; PREMUL_SUM multiplies by this rank's factor.
struct Contribution {
  Reduction reduction;
  double scale = 1.0;
};

// `call`: the user's name of it, for errors. Throws Failure(Usage) if the operation is not defined for the dtype.
// A device has floats of 8 bits too. A factor that lies on a device is read: that waits for the caller's stream.
Contribution contributionOf(const char* call, const c10d::ReduceOp& op, at::ScalarType dtype, int ranks,
                            bool onDevice = false);
// The rows of a device's reduce-scatter, whose inputs are the wholes, or, without contributions, of its all-gather into
// them. A whole has a part like this rank's for each rank.
BlockRows rowsOnDevice(const std::vector<at::Tensor>& wholes, const std::vector<at::Tensor>& parts,
                       const std::vector<Contribution>& contributions, int rank, int ranks);
// The factor is the same for all floats of a call, and integers have none.
double scaleOf(const std::vector<Contribution>& contributions);

// A group of one rank: this rank's contribution is the result.
void contributeAlone(void* data, std::uint64_t elements, const Contribution& contribution);

}  // namespace fairring
