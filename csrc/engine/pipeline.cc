#include "engine/pipeline.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "exchange/sparse_rows.h"

namespace fairring {

namespace {

// Remembered; a training uses a handful of sizes.
constexpr std::size_t kMostChosen = 1024;
constexpr std::size_t kMostLayouts = 256;

constexpr std::uint64_t kMostExpressBytes = 256 << 10;  // of a small call

Error refusedBy(std::uint32_t rank, const Call& call) {
  return makeError(ErrorKind::Refused, "rank ", rank, " refused its part of ", call.signature.text,
                   ", whose result is not to be used: that rank's own error says why; other calls of the group go on");
}

}  // namespace

Pipeline::Pipeline(const Planner& planner, int rank, Levels levels)
    : planner_(planner),
      rank_(rank),
      levels_(levels),
      queues_(
          {.ring = StagingRing(levels.stagingBytes), .staging = levels.staging, .next = firstSlice(TrafficClass::Bulk)},
          {.ring = StagingRing(levels.expressBytes),
           .staging = levels.staging + levels.stagingBytes,
           .next = firstSlice(TrafficClass::Express)}) {}

std::uint64_t Pipeline::expressBytesBeside(std::uint64_t stagingBytes) {
  constexpr std::uint64_t kMost = 4 << 20;  // 16 calls of the largest size between two machines of one rank
  return std::min(stagingBytes / 8 / StagingRing::kAlignment * StagingRing::kAlignment, kMost);
}

bool Pipeline::idle() const {
  return calls_.empty() && std::ranges::all_of(kTrafficClasses, [this](TrafficClass trafficClass) {
           return queues_[trafficClass].inFlight.empty();
         });
}

ByTrafficClass<std::uint64_t> Pipeline::completedBelow() const {
  const auto below = [this](TrafficClass trafficClass) {
    return firstSlice(trafficClass) + queues_[trafficClass].completed;
  };
  return {below(TrafficClass::Bulk), below(TrafficClass::Express)};
}

void Pipeline::submit(Call call, std::uint64_t signature) {
  if (call.sparse) return submitSparse(std::move(call), signature);
  if (call.blocks) return submitBlocks(std::move(call), signature);
  Packing packing(call.operands);
  const CachedPlan& chosen = chosenFor(packing.bytes());
  enqueue(std::move(call), std::move(packing), signature, chosen);
  run();
}

void Pipeline::submitBlocks(Call call, std::uint64_t signature) {
  assert(call.blocks.has_value());
  Packing packing = Packing::ofBlocks(*call.blocks);
  const CachedPlan& chosen = chosenFor(packing.bytes(), call.blocks->half);
  enqueue(std::move(call), std::move(packing), signature, chosen);
  run();
}

std::shared_ptr<Pipeline::Pending> Pipeline::enqueue(Call call, Packing packing, std::uint64_t signature,
                                                     CachedPlan chosen, bool sized) {
  const TrafficClass trafficClass = chosen.trafficClass;
  calls_.push_back(std::make_shared<Pending>(Pending{.call = std::move(call),
                                                     .packing = std::move(packing),
                                                     .signature = signature,
                                                     .chosen = std::move(chosen),
                                                     .sized = sized}));
  queues_[trafficClass].uncut.push_back(calls_.back());
  return calls_.back();
}

void Pipeline::open() {
  open_ = true;
  run();
}

// Until nothing moves any more. Events that come from within a step only add to what is due.
void Pipeline::run() {
  if (running_ || !open_) return;
  running_ = true;
  for (;;) {
    while (cutNext(queues_[TrafficClass::Express]) || cutNext(queues_[TrafficClass::Bulk])) {
    }
    if (due_.empty()) break;
    const std::uint64_t number = due_.front();
    due_.pop_front();
    beginNext(number);
  }
  running_ = false;
}

// The next slice of the oldest call that is not cut completely. False when there is none or no memory for it.
bool Pipeline::cutNext(Queue& queue) {
  if (!open_ || queue.uncut.empty() || !queue.uncut.front()->sized || !hasMark(queue)) return false;
  const std::shared_ptr<Pending> pending = queue.uncut.front();
  const std::shared_ptr<Slice> slice = nextSlice(queue, *pending);
  const auto offset = queue.ring.take(queue.next, stagingBytesOf(*slice), pending->chosen.stagingBytes);
  if (!offset) return false;

  ++queue.next;
  slice->image = queue.staging + *offset;
  slice->stagingOffset = static_cast<std::uint64_t>(slice->image - levels_.staging);
  pending->cutBytes = stretchOf(*pending).end;
  pending->cut = pending->cutBytes == pending->packing.bytes();
  if (pending->cut) queue.uncut.pop_front();
  ++pending->unfinished;
  for (const Step& step : *slice->plan) notBegun_[turnOf(slice->number, step)].push_back(slice->number);
  queue.inFlight.emplace(slice->number, InFlight{.slice = slice, .call = pending, .unreleased = slice->plan->size()});
  due_.push_back(slice->number);
  levels_.machine->admit(slice);
  if (levels_.rails != nullptr && open_) levels_.rails->admit(slice);
  return open_;
}

// All of it but its memory.
std::shared_ptr<Slice> Pipeline::nextSlice(const Queue& queue, const Pending& pending) {
  const Range stretch = stretchOf(pending);
  auto slice = std::make_shared<Slice>();
  slice->number = queue.next;
  slice->signature = pending.signature;
  slice->plan = pending.chosen.plan;
  if (pending.call.blocks) {
    const std::vector<std::uint64_t> sizes = pending.packing.bytesOfRows(stretch);
    slice->layout = layoutOfBlocks(sizes);
    slice->portions = pending.packing.cut(stretch, planner_.blocks().order(), blockOffsets(planner_.blocks(), sizes));
  } else {
    slice->layout = layoutOf(pending.chosen, queue.next, stretch.size());
    slice->portions = pending.packing.cut(stretch);
  }
  slice->scale = pending.call.scale;
  slice->begin = pending.cutBytes;
  slice->rows = pending.rows;
  slice->prepare = pending.prepare;
  const bool isCompressed = pending.call.residual != nullptr && planner_.topology().sites() > 1;
  const std::uint64_t floatsBefore = pending.cutBytes / sizeof(float);
  if (isCompressed) slice->residual = pending.call.residual + floatsBefore;
  if (pending.call.refused) slice->refuse(static_cast<std::uint32_t>(rank_) + 1);
  return slice;
}

// Of each of its rows, what goes into the next slice.
Range Pipeline::stretchOf(const Pending& pending) {
  return {pending.cutBytes, std::min(pending.cutBytes + pending.chosen.sliceBytes, pending.packing.bytes())};
}

// By number, not by count: what the machine level keeps of slice n it uses again for slice n + mostSlices.
bool Pipeline::hasMark(const Queue& queue) const {
  return queue.inFlight.empty() || queue.next - queue.inFlight.begin()->first < levels_.mostSlices;
}

// Begins the slice's next step if it is the first in its turn; then the next in that turn may be due.
void Pipeline::beginNext(std::uint64_t number) {
  std::map<std::uint64_t, InFlight>& inFlight = queueOf(number).inFlight;
  const auto found = inFlight.find(number);
  if (found == inFlight.end() || found->second.phase != Phase::Waiting) return;
  InFlight& state = found->second;
  const Step step = (*state.slice->plan)[state.step];
  std::deque<std::uint64_t>& notBegun = notBegun_.at(turnOf(number, step));
  if (notBegun.front() != number) return;
  notBegun.pop_front();
  if (!notBegun.empty()) due_.push_back(notBegun.front());
  state.phase = Phase::Running;
  const std::size_t index = state.step;
  exchangeOf(step).start(state.slice, index,
                         {[this, number] { onReady(number); }, [this, number] { onReleased(number); }});
}

void Pipeline::onReady(std::uint64_t number) {
  Queue& queue = queueOf(number);
  InFlight& state = queue.inFlight.at(number);
  ++state.step;
  if (state.step < state.slice->plan->size()) {
    state.phase = Phase::Waiting;
    due_.push_back(number);
  } else {
    state.phase = Phase::Finished;
    ++queue.completed;
    --state.call->unfinished;
    if (state.slice->refused != 0) state.call->refused = state.slice->refused;
    finish(state.call);
  }
  if (onProgress) onProgress();
  run();
}

void Pipeline::onReleased(std::uint64_t number) {
  Queue& queue = queueOf(number);
  if (--queue.inFlight.at(number).unreleased > 0) return;
  queue.ring.release(number);
  queue.inFlight.erase(number);
  run();
}

void Pipeline::finish(const std::shared_ptr<Pending>& call) {
  if (!call->cut || call->unfinished > 0) return;
  calls_.erase(std::ranges::find(calls_, call));
  const Call& ended = call->call;
  if (call->learned) return call->learned(call->refused);
  ended.done(ended.refused || call->refused == 0 ? ended.refused : refusedBy(call->refused - 1, ended));
}

void Pipeline::halt() {
  open_ = false;
  for (const TrafficClass trafficClass : kTrafficClasses) queues_[trafficClass].inFlight.clear();
  notBegun_.clear();
  due_.clear();
}

void Pipeline::fail(const Error& error) {
  halt();
  for (const TrafficClass trafficClass : kTrafficClasses) queues_[trafficClass].uncut.clear();
  for (const auto& pending : std::exchange(calls_, {})) {
    if (!pending->learned) pending->call.done(error);
  }
}

const Pipeline::CachedPlan& Pipeline::chosenFor(std::uint64_t bytes, std::optional<Half> half) {
  const std::pair key(half, bytes);
  const auto known = chosen_.find(key);
  if (known != chosen_.end()) return known->second;
  if (chosen_.size() >= kMostChosen) chosen_.clear();
  if (!half) {
    const PlanChoice choice = planner_.choose(bytes, 1);
    return chosen_[key] = chosenBy(choice, trafficClassFor(bytes, choice), planner_.turns(choice.plan));
  }
  const PlanChoice choice =
      half == Half::ReduceScatter ? planner_.chooseReduceScatter(bytes) : planner_.chooseAllGather(bytes);
  const std::uint64_t all = bytes * static_cast<std::uint64_t>(planner_.topology().world());
  return chosen_[key] = chosenBy(choice, trafficClassFor(all, choice), 1);
}

Pipeline::CachedPlan Pipeline::chosenBy(const PlanChoice& choice, TrafficClass trafficClass, std::uint64_t turns) {
  std::shared_ptr<const Plan>& plan = plans_[choice.plan];
  if (!plan) plan = std::make_shared<const Plan>(choice.plan);
  return {.plan = plan,
          .turns = turns,
          .sliceBytes = choice.sliceElements,
          .stagingBytes = trafficClass == TrafficClass::Express ? levels_.expressBytes : choice.stagingBytes,
          .trafficClass = trafficClass};
}

// From what is equal on all ranks alone. As bulk staging does, that of express slices holds four in flight.
TrafficClass Pipeline::trafficClassFor(std::uint64_t bytes, const PlanChoice& choice) const {
  const bool hasRoom =
      levels_.expressBytes > 0 && choice.sliceStagingBytes * Planner::kSlicesInFlight <= levels_.expressBytes;
  return bytes <= kMostExpressBytes && hasRoom ? TrafficClass::Express : TrafficClass::Bulk;
}

std::shared_ptr<const Layout> Pipeline::layoutOf(const CachedPlan& chosen, std::uint64_t slice, std::uint64_t bytes) {
  const std::uint64_t turn = placeOf(slice) % chosen.turns;
  const auto key = std::tuple(chosen.plan.get(), turn, bytes);
  const auto known = layouts_.find(key);
  if (known != layouts_.end()) return known->second;
  if (layouts_.size() >= kMostLayouts) layouts_.clear();
  return layouts_[key] = std::make_shared<Layout>(planner_.layoutOf(*chosen.plan, rank_, turn, bytes, 1));
}

// Training has blocks of equal sizes, of which it has a handful.
std::shared_ptr<const Layout> Pipeline::layoutOfBlocks(const std::vector<std::uint64_t>& sizes) {
  const auto known = blockLayouts_.find(sizes);
  if (known != blockLayouts_.end()) return known->second;
  if (blockLayouts_.size() >= kMostLayouts) blockLayouts_.clear();
  return blockLayouts_[sizes] = std::make_shared<Layout>(planner_.blocks().layout(planner_.topology(), rank_, sizes));
}

}  // namespace fairring
