#include "device/gated_rails.h"

#include <utility>
#include <vector>

#include "exchange/dense_body.h"
#include "exchange/transfers.h"
#include "plan/planner.h"

namespace fairring {

namespace {

// The body of slices as the loop has them. The device sums what the rails bring, so their step is over when it is
// there.
class PinnedBody final : public DenseBody {
 public:
  Job afterReceiving(const Slice&, std::size_t, const std::vector<Transfer>&) const override { return {}; }
};

// What the first step on the rails sends of: the machine's sum, or, where nothing was reduced, this rank's own block.
std::vector<Range> broughtToRails(const Slice& slice) {
  const Plan& plan = *slice.plan;
  if (reduces(plan.front().verb)) return {machineShard(slice)};
  std::vector<Range> own;
  for (const Rail& rail : slice.layout->at(plan[1].level).rails) own.push_back(rail.own());
  return own;
}

// Whether what a step on the rails brings goes to the device, to be summed, or for level 0. Else the next step sends
// it.
bool isForDevice(const Plan& plan, std::size_t step) { return reduces(plan[step].verb) || plan[step + 1].level == 0; }

// Whether the device sums what a step on the rails brings, and the next one sends the sum.
bool goesOutAfter(const Plan& plan, std::size_t step) { return reduces(plan[step].verb) && plan[step + 1].level > 0; }

// The steps before which the device tells that what they need is there; the last one is the slice's end.
std::vector<std::size_t> toldSteps(const Plan& plan) {
  std::vector<std::size_t> steps{1};
  for (std::size_t step = 1; step + 1 < plan.size(); ++step) {
    if (goesOutAfter(plan, step)) steps.push_back(step + 1);
  }
  steps.push_back(plan.size());
  return steps;
}

}  // namespace

GatedRails::GatedRails(Accelerator& accelerator, std::uint64_t stagingBytes, Loop& loop)
    : loop_(loop),
      tells_(accelerator, loop),
      pinned_(accelerator.pinned(stagingBytes)),
      words_(accelerator.pinned(Gates::kBytes)),
      gates_(words_),
      exchange_(std::make_shared<DeviceExchange>(gates_, tells_.words(), std::span(pinned_.get(), stagingBytes))),
      pinnedBody_(std::make_shared<const PinnedBody>()) {}

// The slice as the loop has it, with all that its stream will tell.
void GatedRails::announce(const Slice& slice, const Pipeline::Placement& placement, Accelerator::Stream stream) {
  auto pinned = std::make_shared<Slice>(slice);
  for (Portion& portion : pinned->portions) portion.from = portion.to = nullptr;
  pinned->image = pinnedImage(slice);
  pinned->body = pinnedBody_;
  std::vector<Tells::Expected> expected;
  for (const std::size_t step : toldSteps(*slice.plan)) {
    expected.push_back(tells_.expect(stream, [weak = std::weak_ptr(exchange_), sequence = slice.id.sequence, step] {
      if (const auto exchange = weak.lock()) exchange->reached(sequence, step);
    }));
  }
  loop_.post([exchange = exchange_, words = tells_.words(), pinned = std::move(pinned), placement,
              expected = std::move(expected)]() mutable {
    exchange->add(std::move(pinned), placement);
    for (auto& [index, value, reached] : expected) words->await(index, value, std::move(reached));
  });
}

void GatedRails::enqueue(Accelerator& accelerator, Accelerator::Stream stream, const Slice& slice) {
  const At at{accelerator, stream};
  await(at, slice, 0);
  for (const Range& range : broughtToRails(slice)) copyOut(at, slice, range);
  tells_.tell(accelerator, stream);
  for (std::size_t step = 1; step + 1 < slice.plan->size(); ++step) enqueueStep(at, slice, step);
}

void GatedRails::endSlice(Accelerator& accelerator, Accelerator::Stream stream) { tells_.tell(accelerator, stream); }

// What the loop has brought in this step is summed, and goes out again, or to the user.
void GatedRails::enqueueStep(const At& at, const Slice& slice, std::size_t step) {
  const Plan& plan = *slice.plan;
  if (!isForDevice(plan, step)) return;
  await(at, slice, step);
  if (!reduces(plan[step].verb)) return copyIn(at, slice, machineShard(slice));
  const Range areas{receiveOffset(plan, *slice.layout, step), receiveOffset(plan, *slice.layout, step + 1)};
  copyIn(at, slice, areas);
  sum(at, slice, step);
  if (!goesOutAfter(plan, step)) return;
  for (const Range& range : reducedRanges(plan[step], *slice.layout)) copyOut(at, slice, range);
  tells_.tell(at.accelerator, at.stream);
}

// Sums what a reducing step has brought, on the device.
void GatedRails::sum(const At& at, const Slice& slice, std::size_t step) {
  const Sums sums = DenseBody::sums(slice, step, slice.body->transfers(slice, step));
  for (const Sum& sum : sums)
    at.accelerator.reduce(at.stream, sum.reduction, sum.out, sums.inputsOf(sum), sum.elements);
}

void GatedRails::copyOut(const At& at, const Slice& slice, const Range& range) const {
  at.accelerator.copyOut(at.stream, pinnedImage(slice) + range.begin, slice.at(range), range.size());
}

void GatedRails::copyIn(const At& at, const Slice& slice, const Range& range) const {
  at.accelerator.copyIn(at.stream, slice.at(range), pinnedImage(slice) + range.begin, range.size());
}

void GatedRails::await(const At& at, const Slice& slice, std::size_t gate) const {
  at.accelerator.gate(at.stream, gates_.word(slice.id.sequence, gate), Gates::opened(slice.id.sequence));
}

}  // namespace fairring
