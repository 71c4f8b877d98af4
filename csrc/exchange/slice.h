// A slice as the exchanges see it. Its memory is an image of the slice in staging, every element at its own place,
// followed by the areas that receive contributions. On a machine with one rank no other rank reads the image, and the
// tensor itself may serve as image. Its layout's elements are bytes. Its steps work as its body says (slice_body.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "exchange/portion.h"
#include "exchange/slice_id.h"
#include "kernels/reduce.h"
#include "plan/layout.h"
#include "plan/planner.h"

namespace fairring {

class SliceBody;

// The body of slices of dense tensors. All of them share one.
std::shared_ptr<const SliceBody> denseBody();

struct Slice {
  SliceId id;                   // the same on all ranks
  std::uint64_t signature = 0;  // of the call and all before it: equal on all ranks, or they made different calls
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const SliceBody> body = denseBody();
  std::vector<Portion> portions;     // the tensors' elements in it; bytes between them mean nothing
  double scale = 1.0;                // of this rank's floats, at level 0
  std::uint32_t refused = 0;         // a rank that refused the call, plus 1, as far as is known here; 0: none
  std::byte* image = nullptr;        // in this rank's staging, or the tensor itself
  std::byte* unusedImage = nullptr;  // if the image is the tensor: its unused room in staging; else null
  std::uint64_t stagingOffset = 0;   // of the image within the staging
  std::uint64_t begin = 0;           // its first byte in the call
  bool streams = false;              // streaming stores fill its image (store_choice.h), except in an all-to-all
  bool isDelivering = false;         // an all-reduce in one step within the machine has begun to write the tensors

  std::byte* at(const Range& range) const { return image + range.begin; }
  bool isInTensor() const { return unusedImage != nullptr; }
  std::byte* areasOf(std::size_t step) const;  // that receive the contributions to a reducing step
  Range inCall(const Range& range) const { return {begin + range.begin, begin + range.end}; }
  void refuse(std::uint32_t by) { refused = refused == 0 || by == 0 ? std::max(refused, by) : std::min(refused, by); }
  // How the reducing step reduces a portion: the last such step also divides.
  Reduction reductionOf(const Portion& portion, std::size_t step) const;
};

}  // namespace fairring
