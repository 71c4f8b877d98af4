#include "engine/pipeline.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace fairring {

namespace {

// Remembered; a training uses a handful of sizes.
constexpr std::size_t kMostChosen = 1024;
constexpr std::size_t kMostLayouts = 256;

}  // namespace

Pipeline::Pipeline(const Planner& planner, int rank, Levels levels)
    : planner_(planner), rank_(rank), levels_(levels), ring_(levels.stagingBytes) {}

void Pipeline::submit(Call call, std::uint64_t signature) {
  auto pending = std::make_shared<Pending>();
  pending->signature = signature;
  pending->chosen = chosenFor(call.elements, bytesOf(call.reduction.dtype));
  pending->call = std::move(call);
  calls_.push_back(std::move(pending));
  run();
}

void Pipeline::open() {
  open_ = true;
  run();
}

// Until nothing moves any more. Events that come from within a step only ask for another round.
void Pipeline::run() {
  again_ = true;
  if (running_ || !open_) return;
  running_ = true;
  while (std::exchange(again_, false)) {
    while (cutNext()) {
    }
    // By number: an event that comes from within a step may end its slice, or all of them.
    std::vector<std::uint64_t> numbers;
    numbers.reserve(inFlight_.size());
    for (const auto& [number, state] : inFlight_) numbers.push_back(number);
    for (const std::uint64_t number : numbers) {
      const auto state = inFlight_.find(number);
      if (state != inFlight_.end() && beginNext(state->second)) again_ = true;
    }
  }
  running_ = false;
}

// The next slice of the oldest call that is not cut completely. False when there is none or no memory for it.
bool Pipeline::cutNext() {
  const auto next = std::ranges::find_if(calls_, [](const auto& pending) { return !pending->cut; });
  if (!open_ || next == calls_.end() || !hasMark()) return false;
  const std::shared_ptr<Pending>& pending = *next;
  const Call& call = pending->call;
  const std::size_t elementBytes = bytesOf(call.reduction.dtype);
  const std::uint64_t elements = std::min(pending->chosen.sliceElements, call.elements - pending->cutElements);
  auto layout = layoutOf(pending->chosen, elements, elementBytes);
  const auto offset =
      ring_.take(nextSlice_, stagingBytes(*pending->chosen.plan, *layout), pending->chosen.stagingBytes);
  if (!offset) return false;

  auto slice = std::make_shared<Slice>();
  slice->number = nextSlice_++;
  slice->signature = pending->signature;
  slice->layout = std::move(layout);
  slice->plan = pending->chosen.plan;
  slice->reduction = call.reduction;
  slice->scale = call.scale;
  slice->user = static_cast<std::byte*>(call.data) + pending->cutElements * elementBytes;
  slice->image = levels_.staging + *offset;
  slice->stagingOffset = *offset;
  pending->cutElements += elements;
  pending->cut = pending->cutElements == call.elements;
  ++pending->unfinished;
  for (const Step& step : *slice->plan) notBegun_[turnOf(step)].insert(slice->number);
  inFlight_.emplace(slice->number, InFlight{.slice = slice, .call = pending, .unreleased = slice->plan->size()});
  levels_.machine->admit(slice);
  if (levels_.rails != nullptr && open_) levels_.rails->admit(slice);
  return open_;
}

// By number, not by count: what the machine level keeps of slice n it uses again for slice n + mostSlices.
bool Pipeline::hasMark() const {
  return inFlight_.empty() || nextSlice_ - inFlight_.begin()->first < levels_.mostSlices;
}

// True when the slice's next step began.
bool Pipeline::beginNext(InFlight& state) {
  if (state.phase != Phase::Waiting) return false;
  const std::uint64_t number = state.slice->number;
  const Step step = (*state.slice->plan)[state.step];
  std::set<std::uint64_t>& notBegun = notBegun_.at(turnOf(step));
  if (*notBegun.begin() != number) return false;
  notBegun.erase(notBegun.begin());
  state.phase = Phase::Running;
  const std::size_t index = state.step;
  exchangeOf(step).start(state.slice, index,
                         {[this, number] { onReady(number); }, [this, number] { onReleased(number); }});
  return true;
}

void Pipeline::onReady(std::uint64_t number) {
  InFlight& state = inFlight_.at(number);
  ++state.step;
  state.phase = state.step < state.slice->plan->size() ? Phase::Waiting : Phase::Finished;
  if (state.phase == Phase::Finished) {
    ++completed_;
    --state.call->unfinished;
    finish(state.call);
  }
  if (onProgress) onProgress();
  run();
}

void Pipeline::onReleased(std::uint64_t number) {
  InFlight& state = inFlight_.at(number);
  if (--state.unreleased > 0) return;
  ring_.release(number);
  inFlight_.erase(number);
  run();
}

void Pipeline::finish(const std::shared_ptr<Pending>& call) {
  if (!call->cut || call->unfinished > 0) return;
  std::erase(calls_, call);
  call->call.done({});
}

void Pipeline::halt() {
  open_ = false;
  inFlight_.clear();
  notBegun_.clear();
}

void Pipeline::fail(const Error& error) {
  halt();
  for (const auto& pending : std::exchange(calls_, {})) pending->call.done(error);
}

const Pipeline::Chosen& Pipeline::chosenFor(std::uint64_t elements, std::size_t elementBytes) {
  const Size size(elements, elementBytes);
  const auto known = chosen_.find(size);
  if (known != chosen_.end()) return known->second;
  if (chosen_.size() >= kMostChosen) chosen_.clear();
  Choice choice = planner_.choose(elements, elementBytes);
  const std::uint64_t turns = planner_.turns(choice.plan);
  auto plan = std::make_shared<const Plan>(std::move(choice.plan));
  return chosen_[size] = {.plan = std::move(plan),
                          .turns = turns,
                          .sliceElements = choice.sliceElements,
                          .stagingBytes = choice.stagingBytes};
}

// Of the next slice.
std::shared_ptr<const Layout> Pipeline::layoutOf(const Chosen& chosen, std::uint64_t elements,
                                                 std::size_t elementBytes) {
  const std::uint64_t turn = nextSlice_ % chosen.turns;
  const auto key = std::tuple(*chosen.plan, turn, Size(elements, elementBytes));
  const auto known = layouts_.find(key);
  if (known != layouts_.end()) return known->second;
  if (layouts_.size() >= kMostLayouts) layouts_.clear();
  return layouts_[key] = std::make_shared<Layout>(planner_.layoutOf(*chosen.plan, rank_, turn, elements, elementBytes));
}

}  // namespace fairring
