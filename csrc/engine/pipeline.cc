#include "engine/pipeline.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "exchange/compressed_body.h"

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
      plans_(planner, rank),
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

bool Pipeline::isAtRest() const {
  const bool begun = std::ranges::all_of(notBegun_, [](const auto& turn) { return turn.second.empty(); });
  return calls_.empty() && due_.empty() && begun && std::ranges::all_of(queues_, [](const Queue& queue) {
           return queue.ring.empty() && queue.uncut.empty() && queue.inFlight.empty();
         });
}

void Pipeline::submit(Call call, std::uint64_t signature) {
  if (call.sparse) return submitSparse(std::move(call), signature);
  if (call.pattern == Pattern::AllToAll) return submitAllToAll(std::move(call), signature);
  Packing packing = Packing::of(call);
  call.blocks = {};  // the packing has them; among thousands of ranks they take megabytes
  const CachedPlan& chosen = plans_.of(call.pattern, packing.bytes());
  std::shared_ptr<const SliceBody> body = bodyOf(call);
  enqueue(std::move(call), std::move(packing), signature, chosen)->body = std::move(body);
  run();
}

std::shared_ptr<const SliceBody> Pipeline::bodyOf(const Call& call) const {
  if (planner_.topology().sites() == 1) return levels_.dense;
  switch (call.betweenSites) {
    case SiteFormat::Float32: break;
    case SiteFormat::Bf16: return std::make_shared<const CompressedBody>(call.residual);
  }
  return levels_.dense;
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

std::shared_ptr<Pipeline::Pending> Pipeline::enqueue(Call call, Packing packing, std::uint64_t signature,
                                                     const CachedPlan& chosen) {
  const SliceQueue queue = queueFor(call.pattern, packing, chosen);
  return enqueue({.call = std::move(call),
                  .bytes = packing.bytes(),
                  .packing = std::move(packing),
                  .signature = signature,
                  .queue = queue,
                  .chosen = chosen,
                  .body = levels_.dense});
}

// It is bulk, whatever its size will be.
std::shared_ptr<Pipeline::Pending> Pipeline::enqueueUnsized(Call call, std::uint64_t signature) {
  return enqueue(
      {.call = std::move(call), .packing = Packing({}), .signature = signature, .sized = false, .body = levels_.dense});
}

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

// The next slice of the oldest call that is not cut completely. False when there is none or no memory for it.
bool Pipeline::cutNext(Queue& queue) {
  if (queue.uncut.empty() || !queue.uncut.front()->sized) return false;
  if (!hasMark(queue)) return waitsForStaging(queue);
  const std::shared_ptr<Pending> pending = queue.uncut.front();
  const std::shared_ptr<Slice> slice = nextSlice(queue, *pending);
  const std::uint64_t bytes = slice->body->stagingBytes(*slice);
  const std::uint64_t ring =
      pending->queue == SliceQueue::HostExpress ? levels_.expressBytes : pending->chosen.stagingBytes;
  const auto offset = queue.ring.take(queue.next.sequence, bytes, ring);
  if (!offset) return waitsForStaging(queue);
  recordStaging(queue, *slice, bytes);
  slice->image = queue.staging + *offset;
  slice->stagingOffset = static_cast<std::uint64_t>(slice->image - levels_.staging);
  if (std::byte* const tensor = tensorAsImage(*slice, *pending))
    slice->unusedImage = std::exchange(slice->image, tensor);
  pending->cutBytes = stretchOf(*pending).end;
  pending->cut = pending->cutBytes == pending->bytes;
  if (pending->cut) pending->packing = Packing({});  // its slices have their portions
  pending->isTouched |= slice->isInTensor() || pending->cells != nullptr;
  begin(queue, pending, slice);
  return true;
}

// A slice that has its place.
void Pipeline::begin(Queue& queue, const std::shared_ptr<Pending>& pending, const std::shared_ptr<Slice>& slice) {
  assert(slice->id == queue.next);
  ++queue.next.sequence;
  if (pending->cut) queue.uncut.pop_front();
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
  const Range stretch = stretchOf(pending);
  auto slice = std::make_shared<Slice>();
  slice->id = queue.next;
  slice->signature = pending.signature;
  slice->plan = pending.chosen.plan;
  slice->body = pending.body;
  if (pending.cells) {
    slice->body = levels_.ofCells(pending.cells, stretch);
    slice->layout = plans_.layoutOfCells();
  } else if (isByRank(pending.call.pattern)) {
    const std::vector<std::uint64_t> sizes = pending.packing.bytesOfRows(stretch);
    slice->layout = plans_.layoutOfBlocks(sizes, pending.call.root);
    slice->portions = pending.packing.cut(stretch, planner_.blocks().order(), blockOffsets(planner_.blocks(), sizes));
  } else {
    slice->layout = plans_.layoutOf(pending.chosen, queue.next.sequence, stretch.size(), pending.call.root);
    slice->portions = pending.packing.cut(stretch);
  }
  slice->scale = pending.call.scale;
  slice->begin = pending.cutBytes;
  if (pending.call.refused && isHeardRefusing(pending.call)) slice->refuse(static_cast<std::uint32_t>(rank_) + 1);
  return slice;
}

// The stretch of each row that goes into the next slice.
Range Pipeline::stretchOf(const Pending& pending) {
  return {pending.cutBytes, std::min(pending.cutBytes + pending.chosen.sliceBytes, pending.bytes)};
}

// Null: the slice needs an image of its own. A small call's does not pay, for its end would wait for a round trip.
std::byte* Pipeline::tensorAsImage(const Slice& slice, const Pending& pending) const {
  if (!levels_.tensorsMayBeImages || pending.queue == SliceQueue::HostExpress) return nullptr;
  if (pending.call.pattern != Pattern::AllReduce || slice.body != levels_.dense || slice.portions.size() != 1)
    return nullptr;
  const Portion& portion = slice.portions.front();
  const DType dtype = portion.reduction.dtype;
  const bool isAsItIs = portion.from == portion.to && dtype != DType::Bool && (slice.scale == 1.0 || !isFloat(dtype));
  return isAsItIs && portion.begin == 0 && portion.end() == slice.layout->elements ? portion.to : nullptr;
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
  state.call->isTouched |= index + 1 == state.slice->plan->size();  // which brings the result to the tensors
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
    ++queue.completed;
    if (!state.slice->isInTensor()) end(state);
  }
  if (onNextProgress) std::exchange(onNextProgress, nullptr)();
  run();
}

void Pipeline::onReleased(SliceId id) {
  Queue& queue = queueOf(id.queue);
  if (--queue.inFlight.at(id).unreleased > 0) return;
  queue.ring.release(id.sequence);
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
  if (!call->cut || call->unfinished > 0) return;
  calls_.erase(std::ranges::find(calls_, call));
  const Call& ended = call->call;
  if (call->learned) return call->learned(call->refused);
  const bool isMissing = call->refused != 0 && missesWhatIsRefused(ended);
  ended.done(ended.refused || !isMissing ? ended.refused : refusedBy(call->refused - 1, ended));
}

std::set<std::uint64_t> Pipeline::untouched() const {
  std::set<std::uint64_t> numbers;
  for (const auto& pending : calls_) {
    if (!pending->isTouched) numbers.insert(pending->call.number);
  }
  for (const auto& pending : calls_) {
    if (pending->isTouched) numbers.erase(pending->call.number);  // of several parts, one has
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
  while (!calls_.empty()) {
    const std::shared_ptr<Pending> pending = calls_.front();
    if (pending->call.done) pending->call.done(error);  // the last part of a call has it
    calls_.pop_front();
  }
}

// The choice depends only on what is equal on all ranks. Express staging, as bulk staging, holds four slices in flight.
SliceQueue Pipeline::queueFor(Pattern pattern, const Packing& packing, const CachedPlan& chosen) const {
  const std::uint64_t rows = isByRank(pattern) ? static_cast<std::uint64_t>(planner_.topology().world()) : 1;
  const bool hasRoom =
      levels_.expressBytes > 0 && chosen.sliceStagingBytes * Planner::kSlicesInFlight <= levels_.expressBytes;
  return rows * packing.bytes() <= kMostExpressBytes && hasRoom ? SliceQueue::HostExpress : SliceQueue::HostBulk;
}

}  // namespace fairring
