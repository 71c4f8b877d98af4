#include "engine/pipeline.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/call_in_parts.h"

namespace fairring {

namespace {

constexpr std::uint64_t kMostExpressBytes = 256 << 10;  // of a small call

Error refusedBy(std::uint32_t rank, const Call& call) {
  return makeError(ErrorKind::Refused, "rank ", rank, " refused its part of ", call.signature.text,
                   ", whose result is not to be used: that rank's own error says why; other calls of the group go on")
      .about({static_cast<int>(rank)});
}

}  // namespace

Pipeline::Pipeline(const Planner& planner, int rank, const Levels& levels)
    : planner_(planner),
      rank_(rank),
      levels_(levels),
      slicing_(planner, rank, levels.bodies),
      queues_{
          Queue{.ring = StagingRing(levels.stagingBytes), .staging = levels.staging, .next = {SliceQueue::HostBulk, 0}},
          Queue{.ring = StagingRing(levels.expressBytes),
                .staging = levels.staging + levels.stagingBytes,
                .next = {SliceQueue::HostExpress, 0}},
          Queue{.ring = StagingRing(0), .staging = nullptr, .next = {SliceQueue::Device, 0}}} {}

std::uint64_t Pipeline::expressBytesBeside(std::uint64_t stagingBytes) {
  constexpr std::uint64_t kMost = 4 << 20;  // 16 calls of the largest size between two machines of one rank
  return std::min(stagingBytes / 8 / StagingRing::kAlignment * StagingRing::kAlignment, kMost);
}

Watermarks Pipeline::completed() const {
  Watermarks slicesBelow;
  for (const Queue& queue : queues_) slicesBelow[queue.next.queue] = queue.completed;
  return slicesBelow;
}

bool Pipeline::hasBegun(const Watermarks& slicesBelow) const {
  return std::ranges::all_of(queues_,
                             [&](const Queue& queue) { return queue.next.sequence >= slicesBelow[queue.next.queue]; });
}

bool Pipeline::hasCalls(SliceQueue queue) const {
  return std::ranges::any_of(calls_, [queue](const auto& call) { return call->queue == queue; });
}

bool Pipeline::awaitsInputs(std::uint64_t call) const {
  return std::ranges::any_of(
      calls_, [call](const auto& pending) { return pending->call.number == call && awaitsInputs(*pending); });
}

bool Pipeline::isAtRest() const {
  const bool begun = std::ranges::all_of(notBegun_, [](const auto& turn) { return turn.second.empty(); });
  return calls_.empty() && due_.empty() && begun && std::ranges::all_of(queues_, [](const Queue& queue) {
           return queue.ring.empty() && queue.uncut.empty() && queue.inFlight.empty();
         });
}

void Pipeline::submit(Call call, std::uint64_t signature) {
  if (call.parts) return submitInParts(std::move(call), signature);
  CallPart part = slicing_.of(call);
  call.blocks = {};  // the part has them; among thousands of ranks they take megabytes
  const SliceQueue queue = queueFor(part);
  enqueue({.call = std::move(call), .signature = signature, .queue = queue, .part = std::move(part)});
  run();
}

// All parts but the first are bulk, whatever their size will be.
void Pipeline::submitInParts(Call call, std::uint64_t signature) {
  const auto partOf = [&call] {
    return Call{.inputs = call.inputs, .signature = call.signature, .refused = call.refused, .done = nullptr};
  };
  CallPart counted = call.parts->first(slicing_);
  const SliceQueue queue = queueFor(counted);
  const auto first = enqueue({.call = partOf(), .signature = signature, .queue = queue, .part = std::move(counted)});
  const auto second = enqueue({.call = partOf(), .signature = signature});
  const auto third = enqueue({.call = std::move(call), .signature = signature});
  const auto sizeLast = [this, third](std::uint32_t refused) {
    if (refused != 0) third->refused = refused;
    third->part = third->call.parts->last(slicing_, third->call.refused);
  };
  first->next = [this, second, third, sizeLast](std::uint32_t refused) {
    if (auto part = third->call.parts->second(slicing_)) {
      third->refused = refused;
      second->part = std::move(*part);
      return;
    }
    drop(second);
    sizeLast(refused);
  };
  second->next = sizeLast;
  run();
}

// A part that is not needed.
void Pipeline::drop(const std::shared_ptr<Pending>& part) {
  assert(!part->part.cut);
  calls_.erase(std::ranges::find(calls_, part));
  auto& uncut = queueOf(part->queue).uncut;
  uncut.erase(std::ranges::find(uncut, part));
}

// If this rank refuses to take part: whether the result of another rank misses what this one has.
bool Pipeline::isHeardRefusing(const Call& call) const {
  const bool isRoot = call.root == rank_;
  switch (call.pattern) {
    case Pattern::Broadcast:
    case Pattern::Scatter: return isRoot;
    case Pattern::Gather:
    case Pattern::Reduce: return !isRoot;
    case Pattern::AllReduce:
    case Pattern::ReduceScatter:
    case Pattern::AllGather:
    case Pattern::AllToAll: break;
  }
  return true;
}

// If another rank refuses: whether this rank's result misses something.
bool Pipeline::missesWhatIsRefused(const Call& call) const { return !hasRoot(call.pattern) || !isHeardRefusing(call); }

std::shared_ptr<Pipeline::Pending> Pipeline::enqueue(Pending pending) {
  calls_.push_back(std::make_shared<Pending>(std::move(pending)));
  queueOf(calls_.back()->queue).uncut.push_back(calls_.back());
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
    while (cutNext(queueOf(SliceQueue::HostExpress)) || cutNext(queueOf(SliceQueue::HostBulk)) || takeNext()) {
    }
    if (due_.empty()) break;
    const SliceId id = due_.front();
    due_.pop_front();
    beginNext(id);
  }
  running_ = false;
}

// The next slice of the oldest call that is not cut completely. False when there is none, or it can't be cut yet.
bool Pipeline::cutNext(Queue& queue) {
  if (queue.uncut.empty() || !queue.uncut.front()->part.cut || awaitsInputs(*queue.uncut.front())) return false;
  if (!hasMark(queue)) return waitsForStaging(queue);
  const std::shared_ptr<Pending> pending = queue.uncut.front();
  const std::shared_ptr<Slice> slice = nextSlice(queue, *pending);
  const std::uint64_t bytes = slice->body->stagingBytes(*slice);
  const std::uint64_t ring =
      pending->queue == SliceQueue::HostExpress ? levels_.expressBytes : pending->part.chosen.stagingBytes;
  const auto offset = queue.ring.take(queue.next.sequence, bytes, ring);
  if (!offset) return waitsForStaging(queue);
  recordStaging(queue, *slice, bytes);
  slice->image = queue.staging + *offset;
  slice->stagingOffset = static_cast<std::uint64_t>(slice->image - levels_.staging);
  if (std::byte* const tensor = tensorAsImage(*slice, *pending))
    slice->unusedImage = std::exchange(slice->image, tensor);
  pending->cutBytes = pending->part.stretchFrom(pending->cutBytes).end;
  pending->isCut = pending->cutBytes == pending->part.bytes;
  if (pending->isCut) pending->part.cut = nullptr;  // its slices have their portions
  // An all-to-all's topmost level writes the results, before the last step.
  pending->isTouched |= slice->isInTensor() || pending->part.pattern == Pattern::AllToAll;
  begin(queue, pending, slice);
  return true;
}

// A slice that has its place.
void Pipeline::begin(Queue& queue, const std::shared_ptr<Pending>& pending, const std::shared_ptr<Slice>& slice) {
  assert(slice->id == queue.next);
  ++queue.next.sequence;
  if (pending->isCut) queue.uncut.pop_front();
  ++pending->unfinished;
  for (const Step& step : *slice->plan) notBegun_[turnOf(slice->id, step)].push_back(slice->id);
  queue.inFlight.emplace(slice->id, InFlight{.slice = slice, .call = pending, .unreleased = slice->plan->size()});
  due_.push_back(slice->id);
  admit(slice);
}

void Pipeline::admit(const std::shared_ptr<Slice>& slice) {
  if (slice->id.queue == SliceQueue::Device) return device_->admit(slice);
  levels_.machine->admit(slice);
  if (levels_.rails != nullptr) levels_.rails->admit(slice);
}

Exchange& Pipeline::exchangeOf(SliceQueue queue, const Step& step) const {
  if (queue == SliceQueue::Device) return *device_;
  return step.level == 0 ? *levels_.machine : *levels_.rails;
}

bool Pipeline::waitsForStaging(Queue& queue) const {
  if (levels_.recorder != nullptr && queue.waitsSince == 0) queue.waitsSince = timeBy(levels_.recorder);
  return false;
}

void Pipeline::recordStaging(Queue& queue, const Slice& slice, std::uint64_t bytes) const {
  if (queue.waitsSince == 0) return;
  levels_.recorder->add({.kind = SliceRecord::Kind::Staging,
                         .signature = slice.signature,
                         .slice = slice.id.onWire(),
                         .bytes = bytes,
                         .began = std::exchange(queue.waitsSince, 0),
                         .ready = timeBy(levels_.recorder)});
}

// All of it but its memory.
std::shared_ptr<Slice> Pipeline::nextSlice(const Queue& queue, const Pending& pending) {
  auto slice = std::make_shared<Slice>();
  slice->id = queue.next;
  slice->signature = pending.signature;
  slice->scale = pending.call.scale;
  slice->begin = pending.cutBytes;
  pending.part.cut(*slice, pending.part.stretchFrom(pending.cutBytes));
  if (pending.call.refused && isHeardRefusing(pending.call)) slice->refuse(static_cast<std::uint32_t>(rank_) + 1);
  return slice;
}

// Null: the slice needs an image of its own. A small call's does not pay, for its end would wait for a round trip.
std::byte* Pipeline::tensorAsImage(const Slice& slice, const Pending& pending) const {
  if (!levels_.tensorsMayBeImages || pending.queue == SliceQueue::HostExpress) return nullptr;
  if (pending.part.pattern != Pattern::AllReduce || slice.body != slicing_.dense() || slice.portions.size() != 1)
    return nullptr;
  const Portion& portion = slice.portions.front();
  const DType dtype = portion.reduction.dtype;
  const bool isAsItIs = portion.from == portion.to && dtype != DType::Bool && (slice.scale == 1.0 || !isFloat(dtype));
  return isAsItIs && portion.begin == 0 && portion.end() == slice.layout->bytes ? portion.to : nullptr;
}

// The mark goes by number, not by count: what the machine level keeps of slice n it uses again for slice n +
// mostSlices.
bool Pipeline::hasMark(const Queue& queue) const {
  return queue.inFlight.empty() || queue.next.sequence - queue.inFlight.begin()->first.sequence < levels_.mostSlices;
}

// Begins the slice's next step if it is the first in its turn; then the next in that turn may be due.
void Pipeline::beginNext(SliceId id) {
  std::map<SliceId, InFlight>& inFlight = queueOf(id.queue).inFlight;
  const auto found = inFlight.find(id);
  if (found == inFlight.end() || found->second.phase != Phase::Waiting) return;
  InFlight& state = found->second;
  const Step step = (*state.slice->plan)[state.step];
  std::deque<SliceId>& notBegun = notBegun_.at(turnOf(id, step));
  if (notBegun.front() != id) return;
  notBegun.pop_front();
  if (!notBegun.empty()) due_.push_back(notBegun.front());
  state.phase = Phase::Running;
  const std::size_t index = state.step;
  // The last step brings the result to the tensors. An all-reduce within a machine first waits for the peers: its slice
  // says when it writes.
  state.call->isTouched |= index + 1 == state.slice->plan->size() && !(step.level == 0 && step.verb == Verb::AllReduce);
  exchangeOf(id.queue, step).start(state.slice, index, {[this, id] { onReady(id); }, [this, id] { onReleased(id); }});
}

void Pipeline::onReady(SliceId id) {
  Queue& queue = queueOf(id.queue);
  InFlight& state = queue.inFlight.at(id);
  ++state.step;
  if (state.step < state.slice->plan->size()) {
    state.phase = Phase::Waiting;
    due_.push_back(id);
  } else {
    state.phase = Phase::Finished;
    state.call->isTouched = true;
    ++queue.completed;
    if (!state.slice->isInTensor()) end(state);
  }
  if (onNextProgress) std::exchange(onNextProgress, nullptr)();
  run();
}

void Pipeline::onReleased(SliceId id) {
  Queue& queue = queueOf(id.queue);
  if (--queue.inFlight.at(id).unreleased > 0) return;
  if (id.queue != SliceQueue::Device) queue.ring.release(id.sequence);
  const auto released = queue.inFlight.extract(id);
  if (released.mapped().slice->isInTensor()) end(released.mapped());
  if (onNextProgress) std::exchange(onNextProgress, nullptr)();
  run();
}

// What is sent of the result is sent from its image, so a call whose tensor is that ends only when all of it is gone.
void Pipeline::end(const InFlight& slice) {
  --slice.call->unfinished;
  if (slice.slice->refused != 0) slice.call->refused = slice.slice->refused;
  finish(slice.call);
}

void Pipeline::finish(const std::shared_ptr<Pending>& call) {
  if (!call->isCut || call->unfinished > 0) return;
  const Call& ended = call->call;
  const bool isMissing = call->refused != 0 && missesWhatIsRefused(ended);
  // Before the call leaves: if there is no memory for this, it ends as all others do.
  const Error error = ended.refused || !isMissing ? ended.refused : refusedBy(call->refused - 1, ended);
  calls_.erase(std::ranges::find(calls_, call));
  if (call->next) return call->next(call->refused);
  ended.done(error);
}

std::set<std::uint64_t> Pipeline::untouched() const {
  std::set<std::uint64_t> numbers;
  for (const auto& pending : calls_) {
    if (!pending->isTouched) numbers.insert(pending->call.number);
  }
  for (const auto& pending : calls_) {
    if (pending->isTouched) numbers.erase(pending->call.number);  // of several parts, one has
  }
  for (const Queue& queue : queues_) {
    for (const auto& [id, state] : queue.inFlight) {
      if (state.slice->isDelivering) numbers.erase(state.call->call.number);
    }
  }
  return numbers;
}

void Pipeline::fail(const Error& error) {
  halt();
  for (Queue& queue : queues_) {
    queue.inFlight.clear();
    queue.uncut.clear();
  }
  notBegun_.clear();
  due_.clear();
  placed_.clear();
  while (!calls_.empty()) {
    const std::shared_ptr<Pending> pending = calls_.front();
    if (pending->call.done) pending->call.done(error);  // the last part of a call has it
    calls_.pop_front();
  }
}

// The choice depends only on what is equal on all ranks. Express staging, as bulk staging, holds four slices in flight.
SliceQueue Pipeline::queueFor(const CallPart& part) const {
  const std::uint64_t rows = isByRank(part.pattern) ? static_cast<std::uint64_t>(planner_.topology().world()) : 1;
  const bool hasRoom =
      levels_.expressBytes > 0 && part.chosen.sliceStagingBytes * Planner::kSlicesInFlight <= levels_.expressBytes;
  return rows * part.bytes <= kMostExpressBytes && hasRoom ? SliceQueue::HostExpress : SliceQueue::HostBulk;
}

}  // namespace fairring
