// The threads that wait for copies to the host's memory. Copies of one stream are waited for in order, by one thread;
// those of another by another thread, for the streams may wait for each other. A thread without a stream stands ready
// for the next.
//
// A device may never come to a copy. So the process's end waits for these threads for five seconds only: from the
// destructor's end on they touch nothing but what they own together.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "engine/arrival.h"

namespace fairring {

class CopyWaiters {
 public:
  CopyWaiters();
  CopyWaiters(const CopyWaiters&) = delete;
  CopyWaiters& operator=(const CopyWaiters&) = delete;
  ~CopyWaiters();

  // Waits here until the stream has come to this point. An error of the device's: it never will.
  static Error waitHere(const c10::Stream& stream);
  // Lets the tensors go and tells the arrival, once the stream has come to this point. Where the system has no more
  // threads or memory, the caller waits. Any thread.
  void wait(const c10::Stream& stream, std::vector<at::Tensor> tensors, const std::shared_ptr<Arrival>& arrival);

 private:
  struct Copies;
  class Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace fairring
