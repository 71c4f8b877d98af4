// Whether Fairring or the stock backend serves a call of one group. That follows from the group and from the devices
// and layouts of the tensors, which may differ between the ranks only where no stock backend serves any of them. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace fairring {

class Delegation {
 public:
  using Tensors = std::vector<at::Tensor>;

  // hasStock: whether the group has a stock backend, which serves the tensors of CUDA devices. Tensors of all other
  // devices are Fairring's: they go through the host (through_host.h).
  explicit Delegation(bool hasStock) : hasStock_(hasStock) {}

  bool hasStock() const { return hasStock_; }
  bool serves(const at::Tensor& tensor) const;  // its device
  bool serves(const Tensors& tensors) const;    // all of their devices
  // Whether all, of which there are some, can be reduced: operations and dtypes make no difference, for those that
  // Fairring can't reduce are undefined in the stock backend too.
  bool reduces(const Tensors& tensors) const;

  // `call`: the user's name of the call. They throw c10::ValueError: if one is not dense, or not served; if one that is
  // served is sparse, for only all-reduces take these.
  void requireDense(const char* call, const Tensors& tensors) const;
  void refuseSparse(const char* call, const Tensors& tensors) const;

 private:
  const bool hasStock_;
};

}  // namespace fairring
