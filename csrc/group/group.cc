#include "group/group.h"

#include <algorithm>
#include <cassert>
#include <future>
#include <utility>

#include "base/out_of_memory.h"
#include "engine/call_in_parts.h"
#include "group/member.h"
#include "group/trace.h"

namespace fairring {

namespace {

// How long a group that is destroyed waits for its peers to have what they need of it. They answer by themselves as
// soon as they have; only one that is stopped or cut off makes this rank wait so long.
constexpr std::chrono::seconds kLeaveTimeout{30};

// Carrying one on takes its caller less than waking another thread would.
constexpr std::uint64_t kShortBytes = 64 << 10;

bool isShort(const Call& call) {
  std::uint64_t bytes = call.parts ? call.parts->mostBytes() : 0;
  const auto add = [&bytes](const auto& one) { bytes += one.elements * bytesOf(one.reduction.dtype); };
  std::ranges::for_each(call.operands, add);
  for (const auto& blocks : call.blocks) std::ranges::for_each(blocks, add);
  return bytes <= kShortBytes;
}

}  // namespace

Group::Group(Threads threads, std::shared_ptr<GroupEndpoint> endpoint, GroupSettings settings,
             std::vector<RankFacts> facts)
    : threads_(threads),
      settings_(std::move(settings)),
      member_(std::make_shared<Member>(threads, std::move(endpoint), settings_, std::move(facts))) {
  threads_.slices.loop().post([member = member_] { member->open(); });
}

// What is enqueued on a device needs no wait of the user's on the host: so it is waited for here.
Group::~Group() {
  if (chain_) {
    std::promise<void> idle;
    threads_.slices.loop().post([this, &idle] { member_->whenDeviceIsIdle([&idle] { idle.set_value(); }); });
    const std::future<void> over = idle.get_future();
    if (over.wait_for(settings_.endsDeviceWithin) == std::future_status::timeout) {
      abort(makeError(ErrorKind::Aborted, "rank ", settings_.rank, " ended group ", settings_.name,
                      ", and its calls on CUDA tensors had not ended ", settings_.endsDeviceWithin.count(),
                      " s later; synchronize the device before destroy_process_group() if they take longer")
                .about({settings_.rank}));
    }
    over.wait();
  }
  writeTraceAtEnd();  // before the connections end, of which it tells
  const auto left = std::make_shared<std::promise<void>>();
  threads_.slices.loop().post([member = member_, left] { member->leave([left] { left->set_value(); }); });
  left->get_future().wait_for(kLeaveTimeout);
  threads_.slices.runAndWait([this] { member_->close(); });
  if (!chain_) return;
  if (error()) chain_->accelerator().abort();  // nobody may have come to it yet, and its end waits for its streams
  dropChain();
}

void Group::endUnfinished() {
  threads_.slices.runAndWait([this] { member_->endUnfinished(); });
}

void Group::submit(Call call, bool waited) {
  Loop& loop = threads_.slices.loop();
  const bool serves = waited || isShort(call);
  Loop::Clock::time_point made;
  {
    const std::lock_guard lock(order_);
    CallRecord entered = member_->calls().enter(call.signature);
    made = Loop::Clock::time_point(std::chrono::nanoseconds(entered.made));
    auto task = [member = member_, entered = std::move(entered), call = std::move(call)]() mutable {
      member->submit(std::move(call), entered);
    };
    if (!serves) return loop.post(std::move(task));
    if (!(waited ? loop.postAndTake(std::move(task)) : loop.postInRow(std::move(task)))) return;
  }
  waited ? loop.runPostedAndGive(made)
         : loop.progressAndGive();  // without the lock: others may call meanwhile, from the loop as well
}

void Group::send(Sending sending) {
  carryOn([member = member_, sending = std::move(sending)]() mutable { member->send(std::move(sending)); });
}

void Group::receive(Receiving receiving) {
  carryOn([member = member_, receiving = std::move(receiving)]() mutable { member->receive(std::move(receiving)); });
}

// A short task, here where nobody serves the loop.
void Group::carryOn(std::function<void()> task) {
  Loop& loop = threads_.slices.loop();
  if (loop.postInRow(std::move(task))) loop.progressAndGive();
}

void Group::expire(TimedCall call, std::optional<int> peer, std::function<bool()> isUnderWay) {
  threads_.slices.loop().post([member = member_, call = std::move(call), peer, isUnderWay = std::move(isUnderWay)] {
    member->onLate(call, peer, isUnderWay);
  });
}

std::uint64_t Group::enter(const Signature& signature) {
  const std::lock_guard lock(order_);
  return member_->calls().enter(signature).number;
}

void Group::ended(std::uint64_t number, const Error& error) {
  threads_.slices.loop().post([member = member_, number, error] { member->ended(number, error); });
}

std::uint64_t Group::callsMade() const { return member_->calls().count(); }

std::uint64_t Group::settle(std::chrono::milliseconds forThoseUnderWay) {
  const auto idle = std::make_shared<std::promise<void>>();
  threads_.slices.loop().post([member = member_, idle] { member->whenIdle([idle] { idle->set_value(); }); });
  idle->get_future().wait_for(forThoseUnderWay);
  std::uint64_t complete = 0;
  threads_.slices.runAndWait([&] { complete = member_->settle(); });
  return complete;
}

void Group::submit(Call call, const OnDevice& where) {
  const std::lock_guard lock(order_);
  try {
    DeviceChain& chain = chainOn(where.device, call.timeout);
    const CallRecord entered = member_->calls().enter(call.signature);
    const DeviceChain::Tensors tensors{call.pattern, Packing::of(call), call.scale, entered.hash, where.poisoned};
    threads_.slices.loop().post([member = member_, call = std::move(call), entered]() mutable {
      member->beginOnDevice(std::move(call), entered);
    });
    if (const Error earlier = error()) throw Failure(earlier);
    chain.accelerator().wait(where.joined, chain.enqueue(tensors, where.after));
  } catch (const Failure& failure) {
    const Error mine = named(failure.error());
    abort(mine);
    joinAll(where.joined);
    const Error earlier = error();  // which broke the device off under this call
    throw Failure(earlier ? earlier : mine);
  } catch (const std::exception& exception) {  // no memory; the slices that it has announced would be a later call's
    abort(makeError(ErrorKind::System, "rank ", settings_.rank,
                    " could not enqueue a call on its device: ", exception.what())
              .about({settings_.rank}));
    joinAll(where.joined);
    throw;
  }
}

// The error goes to all ranks. NCCL's names this rank; CUDA's names a device, of which other ranks have one too.
Error Group::named(const Error& error) const {
  const std::string who = concat("rank ", settings_.rank);
  if (error.text().starts_with(who)) return error.ranks().empty() ? error.about({settings_.rank}) : error;
  return makeError(error.kind(), who, " of group ", settings_.name, ": ", error.text()).about({settings_.rank});
}

// What was enqueued before a call failed still reads and writes its tensors, whose memory is free behind `joined`.
void Group::joinAll(Accelerator::Stream joined) noexcept {
  if (!chain_) return;
  try {
    Accelerator& device = chain_->accelerator();
    for (std::size_t i = 0; i < device.streams(); ++i) device.wait(joined, device.record(device.stream(i)));
  } catch (const Failure&) {
    return;  // of the device itself: nothing runs there any more
  }
}

DeviceChain& Group::chainOn(int device, std::chrono::milliseconds timeout) {
  if (!chain_) makeChain(device, timeout);
  check(device == device_, ErrorKind::Usage, "rank ", settings_.rank, " of group ", settings_.name,
        ": a tensor on device ", device, ", but its earlier calls were on device ", device_,
        ": a rank has one device in a group");
  if (std::exchange(isGuarded_, true)) return *chain_;
  // Whoever breaks the device off may be the last to hold the chain; that is never the loop.
  std::function<void()> abortDevice = [chain = std::weak_ptr(chain_)] {
    if (const auto there = chain.lock()) there->accelerator().abort();
  };
  threads_.slices.loop().post(
      [member = member_, device = chain_->exchange(), abortDevice = std::move(abortDevice)]() mutable {
        member->guard(std::move(device), std::move(abortDevice));
      });
  return *chain_;
}

// The ranks of the machine make it together: each at its first call, which is the same on all of them. They wait for a
// rank that has no memory then, so that it can't go on, and the group has to fail.
std::shared_ptr<Accelerator> Group::makeAccelerator(int device, std::chrono::milliseconds timeout) {
  const Topology& topology = member_->devicePlanner().topology();
  const std::vector<int>& ranks = topology.ranksOf(topology.machineOf(settings_.rank));
  awaitDevice(timeout);
  try {
    return settings_.makeAccelerator(device, ranks, timeout);
  } catch (const OutOfMemory& failure) {
    if (ranks.size() == 1) throw;
    throw Failure(failure.error());
  }
}

void Group::awaitDevice(std::chrono::milliseconds timeout) {
  threads_.slices.loop().post([member = member_, timeout] { member->awaitDevice(timeout); });
}

void Group::makeChain(int device, std::chrono::milliseconds timeout) {
  auto made = std::make_unique<DeviceChain>(member_->devicePlanner(), settings_.rank, settings_.tuning.totalMemoryBytes,
                                            makeAccelerator(device, timeout), threads_.slices.loop());
  const auto ended = std::make_shared<std::promise<void>>();
  chainEnded_ = ended->get_future();
  chain_ = std::shared_ptr<DeviceChain>(made.release(), [ended](DeviceChain* chain) {
    std::unique_ptr<DeviceChain>(chain).reset();
    ended->set_value();
  });
  device_ = device;
}

void Group::dropChain() {
  chain_.reset();
  chainEnded_.wait();  // whoever breaks the device off may hold it still, and what that tells goes to the loop
}

std::string Group::equip(int device, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(order_);
  try {
    if (!chain_) makeChain(device, timeout);
    return {};
  } catch (const OutOfMemory& failure) {
    return failure.error().text();
  } catch (const Failure& failure) {
    const Error mine = named(failure.error());
    abort(mine);
    const Error earlier = error();  // which broke the device off under this call
    throw Failure(earlier ? earlier : mine);
  } catch (const std::exception& exception) {
    abort(makeError(ErrorKind::System, "rank ", settings_.rank, " of group ", settings_.name,
                    " could not prepare its device for calls: ", exception.what())
              .about({settings_.rank}));
    throw;
  }
}

std::shared_ptr<Accelerator> Group::accelerator() {
  const std::lock_guard lock(order_);
  assert(chain_);
  return chain_->sharedAccelerator();
}

void Group::noteDeviceWay(std::string words) {
  threads_.slices.loop().post(
      [member = member_, words = std::move(words)]() mutable { member->noteDeviceWay(std::move(words)); });
}

void Group::unequip() {
  const std::lock_guard lock(order_);
  if (chain_) dropChain();
}

void Group::abort(const Error& error) {
  threads_.slices.loop().post([member = member_, error] { member->fail(error); });
}

Error Group::error() const { return member_->error(); }

bool Group::isLinked() const { return member_->isLinked(); }

std::string Group::trace(std::size_t calls, const std::string& program) const {
  Member::Seen seen;
  threads_.slices.runAndWait([&] { seen = member_->trace(calls); });
  seen.first.program = program;
  return chromeTrace(seen.first, seen.second);  // not on the loop, for it takes a while
}

// Once it has failed, its trace is that of the moment: it says what was under way.
void Group::writeTrace(std::size_t calls, const std::string& program) const {
  if (!settings_.tuning.traceDirectory.empty() && !error())
    writeTraceFile(settings_.tuning.traceDirectory, settings_.name, settings_.rank, trace(calls, program));
}

void Group::writeTraceAtEnd() const noexcept {
  if (settings_.tuning.traceDirectory.empty() || error()) return;
  Member::Seen seen;
  threads_.slices.runAndWait([&] { seen = member_->trace(kAllCalls); });
  writeTraceOrSay(settings_.tuning.traceDirectory, seen.first, seen.second);
}

TrafficByLevel Group::traffic() const {
  TrafficByLevel moved;
  threads_.slices.runAndWait([&] { moved = member_->traffic(); });
  return moved;
}

}  // namespace fairring
