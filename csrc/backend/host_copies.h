// Copies of a call's inputs to the host's memory, which the call does not wait for: they are made on the caller's
// stream, behind all that it had enqueued, and the call begins when they are there (engine/arrival.h). One object per
// call, on its caller's thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/copy_waiters.h"
#include "engine/arrival.h"

namespace fairring {

class HostCopies {
 public:
  // The copy of a tensor's elements, or the tensor itself if it is on the CPU. Throws c10::Error where a graph captures
  // the caller's stream: a graph would replay the copy without the call behind it.
  at::Tensor of(const at::Tensor& tensor);
  // Waits until they are all there.
  void await();
  // Has a thread of these wait for them, or does so itself if that takes less. Null: there are none. `waited`: the
  // caller goes on to wait for the call.
  std::shared_ptr<Arrival> leaveTo(CopyWaiters& waiters, bool waited);

 private:
  // The copies of one stream, with the tensors that they read and write.
  struct OfStream {
    c10::Stream stream;
    std::vector<at::Tensor> tensors;
  };
  std::vector<OfStream> streams_;
  std::uint64_t bytes_ = 0;
  bool wereIdle_ = true;  // all of these streams, before the first copy
};

}  // namespace fairring
