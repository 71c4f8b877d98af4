// FAIRRING_CUDA=auto: a trial, before the first call on CUDA tensors, whether this rank's device, its driver and the
// group have the properties that such calls rely on. If one is missing, the answer names it; nothing is broken or left
// behind. Called on callers' threads, without the GIL. Each waits for some seconds at most, except for ranks that have
// yet to come, and for as long as NCCL takes to be made.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend/membership.h"

namespace fairring {

// This rank only: streams stand at gates, the program's kernels and copies get past them, and the device reports its
// progress to the host, even if another thread waits in the driver for memory.
std::string tryDevice(const c10::Device& device, int rank, std::chrono::milliseconds timeout);

// All ranks at once: sums of several slices, in fp32 and bf16, are those of NCCL, bit by bit. trial: a membership used
// for nothing else.
std::string trySums(Membership& trial, c10d::Backend& nccl, const c10::Device& device,
                    std::chrono::milliseconds timeout);

}  // namespace fairring
