#include "device/device_exchange.h"

#include <algorithm>
#include <utility>

namespace fairring {

void DeviceExchange::attach(Pipeline& pipeline, Exchange& rails) {
  pipeline_ = &pipeline;
  rails_ = &rails;
  pipeline.attach(*this);
}

void DeviceExchange::add(std::shared_ptr<Slice> slice, const Pipeline::Placement& placement) {
  if (pipeline_ != nullptr) pipeline_->add(std::move(slice), placement);
}

void DeviceExchange::admit(const std::shared_ptr<Slice>& slice) {
  gates_.open(slice->id.sequence, 0);
  rails_->admit(slice);
}

void DeviceExchange::start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) {
  const std::uint64_t sequence = slice->id.sequence;
  if ((*slice->plan)[step].level > 0) {
    return rails_->start(
        slice, step,
        {[this, slice, step, ready = std::move(events.ready)] { onBrought(*slice, step, ready); }, events.released});
  }
  if (step > 0) gates_.open(sequence, step - 1);
  const bool isLast = step + 1 == slice->plan->size();
  await(sequence, step + 1, [this, sequence, isLast, events = std::move(events)] {
    if (isLast) slices_.erase(sequence);
    events.ready();
    events.released();
  });
}

// What follows on the rails is sent when the device has summed the contributions and told that the sum is out. The
// rails may release the step before that: the slice's staging is free only after its last step.
void DeviceExchange::onBrought(const Slice& slice, std::size_t step, const std::function<void()>& ready) {
  const Plan& plan = *slice.plan;
  if (!reduces(plan[step].verb) || plan[step + 1].level == 0) return ready();
  gates_.open(slice.id.sequence, step);
  await(slice.id.sequence, step + 1, ready);
}

void DeviceExchange::await(std::uint64_t sequence, std::size_t step, std::function<void()> then) {
  Progress& progress = slices_[sequence];
  if (progress.reached >= step) return then();
  progress.awaited = step;
  progress.then = std::move(then);
}

void DeviceExchange::reached(std::uint64_t sequence, std::size_t step) {
  if (pipeline_ == nullptr) return;
  Progress& progress = slices_[sequence];
  progress.reached = std::max(progress.reached, step);
  if (progress.then && progress.reached >= progress.awaited) std::exchange(progress.then, nullptr)();
}

void DeviceExchange::stop() {
  pipeline_ = nullptr;
  words_->stop();
  slices_.clear();
}

void DeviceExchange::openForEver() {
  stop();
  gates_.failAndOpenAll();
}

}  // namespace fairring
