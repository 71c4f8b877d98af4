// The engine's Signature of a call, made from c10d's arguments: peers' calls must have the same one. It covers only
// properties that are equal on all ranks of every legal program, so the caller names the tensors that are: the outputs
// of an all-gather, whose inputs may be uneven, but only the dtype of an all-to-all. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "backend/operation.h"
#include "engine/call.h"

namespace fairring {

struct Common {
  // Dtypes and numbers of elements.
  std::vector<at::Tensor> tensors = {};
  bool dtypesOnly = false;
  bool onDevice = false;  // of calls that devices exchange; others have no device, for ranks may differ in it
  std::optional<std::int64_t> root = std::nullopt;
  std::optional<c10d::ReduceOp::RedOpType> reduction = std::nullopt;
  // Null: they cross between sites as they are.
  const SiteFormat* siteFormat = nullptr;
};

Signature signatureOf(const Operation& operation, const Common& common);

}  // namespace fairring
