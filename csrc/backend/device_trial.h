// FAIRRING_CUDA=auto: whether this rank's device, its driver and the group do what calls on CUDA tensors rely on, tried
// out before the first of them. Where something does not, the answer says what; nothing is broken or left behind.
// Callers, without Python's lock. Each waits for some seconds at most, but for ranks that have yet to come, and for as
// long as NCCL takes to be made.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend/membership.h"

namespace fairring {

// This rank alone: streams stand at gates, the program's kernels and copies get past them, and the device tells the
// host how far it is, though another thread waits in the driver for memory.
std::string tryDevice(const c10::Device& device, int rank, bool writesWords, std::chrono::milliseconds timeout);

// All ranks at once: sums of several slices, in fp32 and bf16, are those of NCCL, bit by bit. trial: a membership for
// nothing else.
std::string trySums(Membership& trial, c10d::Backend& nccl, const c10::Device& device,
                    std::chrono::milliseconds timeout);

}  // namespace fairring
