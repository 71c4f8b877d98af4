#include "device/direct_rails.h"

#include <utility>

#include "exchange/slice_body.h"

namespace fairring {

void DirectRails::enqueue(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) {
  for (std::size_t step = 1; step + 1 < slice.plan->size(); ++step) {
    const auto transfers = slice.body->transfers(slice, step);
    const bool isSummed = reduces((*slice.plan)[step].verb);
    accelerator.exchange(stream, isSummed ? Accelerator::Way::Down : Accelerator::Way::Up, transfers);
    if (isSummed) sum(accelerator, stream, slice, step, transfers);
  }
}

// In a stream of its own, so that no slice stands behind it.
void DirectRails::endCall(Accelerator& accelerator, const std::vector<Accelerator::Event>& ends) {
  const Accelerator::Stream stream = accelerator.tellingStream();
  for (const auto& end : ends) accelerator.wait(stream, end);
  tells_.tell(accelerator, stream, [weak = std::weak_ptr(calls_)] {
    if (const auto calls = weak.lock()) calls->end();
  });
}

}  // namespace fairring
