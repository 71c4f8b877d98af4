#include "device/direct_rails.h"

#include <utility>

#include "exchange/slice_body.h"

namespace fairring {

DirectRails::DirectRails(Accelerator& accelerator, Loop& loop)
    : loop_(loop),
      tells_(accelerator, loop),
      words_(accelerator.pinned(Gates::kBytes)),
      exchange_(std::make_shared<DeviceExchange>(Gates(words_), tells_.words())) {}

void DirectRails::enqueue(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) {
  for (std::size_t step = 1; step + 1 < slice.plan->size(); ++step) {
    const auto transfers = slice.body->transfers(slice, step);
    const bool isSummed = reduces((*slice.plan)[step].verb);
    accelerator.exchange(stream, isSummed ? Accelerator::Way::Down : Accelerator::Way::Up, transfers);
    if (isSummed) sum(accelerator, stream, slice, step, transfers);
  }
}

// It has a stream of its own, so that no slice stands behind it.
void DirectRails::endCall(Accelerator& accelerator, const Accelerator::Event& end) {
  auto whole = std::make_shared<Slice>();
  whole->id = {SliceQueue::Device, calls_++};
  whole->plan = wholeCall_;
  const std::uint64_t sequence = whole->id.sequence;
  loop_.post([exchange = exchange_, whole = std::move(whole)]() mutable { exchange->add(std::move(whole), 0, true); });
  const Accelerator::Stream stream = accelerator.tellingStream();
  accelerator.wait(stream, end);
  tells_.tell(accelerator, stream, [weak = std::weak_ptr(exchange_), sequence] {
    if (const auto exchange = weak.lock()) exchange->reached(sequence, 1);
  });
}

}  // namespace fairring
