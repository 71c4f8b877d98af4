#include "backend/openmp_spinning.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <thread>

namespace fairring {

void leaveOffSpinning(Loop& loop, std::size_t ranks) {
  const auto threads = static_cast<std::size_t>(at::get_num_threads());
  if (ranks < 2 || threads < 2 || ranks * threads <= std::thread::hardware_concurrency()) return;
  constexpr std::int64_t kElements = 1 << 16;  // torch takes several threads from half of it on
  loop.post([] { at::empty({kElements}, at::kByte).fill_(1); });
}

}  // namespace fairring
