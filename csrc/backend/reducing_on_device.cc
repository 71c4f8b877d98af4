// FairringBackend's calls on CUDA tensors, with FAIRRING_CUDA=on or auto, and among them all-reduces: the engine
// enqueues them, level 0 is NCCL's. Calls that are not in the table go to NCCL whole. The choice follows from the
// operation, dtypes, layout, size, the group and its ranks' devices, which are the same on all ranks. Reduce-scatters
// and all-gathers are in blocks_on_device.cc.
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "backend/cuda_device.h"
#include "backend/device_trial.h"
#include "backend/device_work.h"
#include "backend/fairring_backend.h"
#include "backend/gil.h"
#include "backend/signature.h"
#include "base/cuda_error.h"
#include "base/cuda_stream.h"
#include "base/fields.h"

namespace fairring {
namespace {

using Tensors = Fallback::Tensors;

// Elements correspond by their places in memory, as in NCCL. Calls that NCCL refuses, or defines differently, go to it.
bool isDense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense() && !tensor.is_conj() &&
         !tensor.is_neg();
}

bool areOnOneDevice(const Tensors& tensors) {
  return std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
    return tensor.is_cuda() && tensor.device() == tensors.front().device();
  });
}

std::vector<Operand> operandsOf(const Tensors& tensors, const std::vector<Contribution>& contributions) {
  std::vector<Operand> operands;
  operands.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    operands.push_back({tensors[i].data_ptr(), ownElements(tensors[i]), contributions[i].reduction});
  }
  return operands;
}

// Floats have a value that is no number, and bytes may stand for anything, floats too. Other integers have none.
Group::Results poisonedOf(const Tensors& tensors) {
  Group::Results results;
  for (const at::Tensor& tensor : tensors) {
    const at::ScalarType type = tensor.scalar_type();
    if (!c10::isFloatingType(type) && !c10::isComplexType(type) && type != at::kByte) continue;
    if (tensor.nbytes() > 0) results.emplace_back(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
  }
  return results;
}

std::uint64_t wholeBytes(const Tensors& tensors) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

bool areInOneSite(const std::vector<RankFacts>& facts) {
  return std::ranges::all_of(facts, [&](const RankFacts& one) { return one.place.site == facts.front().place.site; });
}

constexpr const char* kOneMachine = "all ranks are on one machine";

bool isOneMachine(const std::vector<RankFacts>& facts) {
  const std::vector<Place> places = devicePlacesOf(facts);
  return std::ranges::all_of(places, [&](const Place& place) { return place.machine == places.front().machine; });
}

std::string wayOf(Membership& membership, const std::string& whyNccls, std::chrono::milliseconds timeout) {
  if (!whyNccls.empty()) return "NCCL's as a whole: " + whyNccls;
  const Transports over = membership.transportFor(membership.factsOfAll(timeout)).transports;
  return concat("fairring's: NCCL inside machines, ", over.rail.name, " between them, ", over.site.name,
                " between sites, from pinned memory; not GPUDirect, which can't stand behind a gate");
}

// Logs each way that a group of this process takes, once: as a warning where a user asked for Fairring, and it is not.
// Groups of one machine say nothing, for nothing was to be gained there.
void tellOnce(const Membership& membership, const std::string& whyNccls, const std::string& way) {
  static std::mutex mutex;
  static std::set<std::string> told;
  if (whyNccls == kOneMachine || !membership.options().devices) return;
  const std::lock_guard lock(mutex);
  if (!told.insert(way).second) return;
  if (!membership.options().devicesOnTrial && !whyNccls.empty()) {
    LOG(WARNING) << "fairring: " << way;
  } else {
    LOG(INFO) << "fairring: " << way;
  }
}

// The verdicts of this process's trials, by the layouts of their groups.
std::mutex rememberingMutex;
std::map<std::string, TrialVerdict> remembered;

void rememberTrial(const std::string& layout, const TrialVerdict& verdict) {
  const std::lock_guard lock(rememberingMutex);
  remembered.insert_or_assign(layout, verdict);
}

// None where a rank has none: a trial is to be made. A rank that was started anew remembers nothing.
std::optional<TrialVerdict> rememberedByAll(Membership& membership, const std::string& layout,
                                            std::chrono::milliseconds timeout) {
  std::string mine;
  {
    const std::lock_guard lock(rememberingMutex);
    if (const auto found = remembered.find(layout); found != remembered.end()) mine = toText(found->second);
  }
  std::vector<TrialVerdict> verdicts;
  for (const std::string& one : membership.devices().answersOfAll("remembered", mine, timeout)) {
    if (one.empty()) return std::nullopt;
    verdicts.push_back(valueOf<TrialVerdict>(one, ErrorKind::Connection, "a rank remembers of a trial ", shownOf(one)));
  }
  TrialVerdict common = commonVerdict(verdicts);
  common.figures += ", for a group of this layout before";
  return common;
}

}  // namespace

Fallback::WorkPtr FairringBackend::reduceOnDevice(const Operation& operation, const Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  if (tensors.empty() || !tensors.front().is_cuda() || !std::ranges::all_of(tensors, isDense)) return nullptr;
  const DeviceCall call{.operation = operation,
                        .common = {.tensors = tensors, .onDevice = true, .reduction = options.reduceOp},
                        .inputs = tensors,
                        .outputs = tensors,
                        .timeout = limitOf(options.timeout)};
  return runOnDevice(call, [&]() -> std::optional<Call> {
    const auto contributions = contributionsOnDevice(operation, options.reduceOp, tensors);
    if (!contributions) return std::nullopt;
    return Call{.operands = operandsOf(tensors, *contributions),
                .scale = scaleOf(*contributions),
                .signature = {},
                .done = nullptr};
  });
}

// None if one of them is NCCL's.
std::optional<std::vector<Contribution>> FairringBackend::contributionsOnDevice(const Operation& operation,
                                                                                const c10d::ReduceOp& op,
                                                                                const Tensors& tensors) const {
  std::vector<Contribution> contributions;
  contributions.reserve(tensors.size());
  try {
    for (const at::Tensor& tensor : tensors) {
      contributions.push_back(contributionOf(operation.verb, op, tensor.scalar_type(), getSize(), /*onDevice=*/true));
      if (!machineReduces(contributions.back().reduction)) return std::nullopt;
    }
  } catch (const Failure&) {  // not defined here; NCCL says whether it has it
    return std::nullopt;
  }
  return contributions;
}

Fallback::WorkPtr FairringBackend::runOnDevice(const DeviceCall& call,
                                               const std::function<std::optional<Call>()>& make) {
  // Nothing would be launched before the end of a group of NCCL's.
  if (!delegation().hasStock() || !areOnOneDevice(call.inputs) || coalescing().hasStock()) return nullptr;
  const GilReleased withoutLock;
  const std::shared_ptr<Membership> membership = this->membership();
  if (!membership) return nullptr;
  refuseUnlessUsable();
  return withTorchsErrors([&]() -> WorkPtr {
    const std::uint64_t bytes = wholeBytes(call.common.tensors);
    DeviceWay way = deviceWay(*membership, bytes, call.timeout);
    if (!way.takes(call.pattern, bytes)) return nullptr;
    const c10::Device device = call.inputs.front().device();
    if (!isOnFirstDevice(device)) return nullptr;
    const c10::Stream callers = callersStream(device);
    // A gate opens at a number that the loop has counted up to, so a graph's second launch would not wait for its
    // peers.
    if (isCapturing(callers)) return nullptr;
    std::optional<Call> made = make();
    if (!made) return nullptr;
    const CaptureUnheeded unheeded;
    if (way.isOnTrial) way = tried(std::move(way), *membership, device, call.timeout);
    if (way.whyNccls.empty() && !way.isEquipped) way = equipped(std::move(way), *membership, device, call.timeout);
    if (!way.takes(call.pattern, bytes)) return nullptr;
    made->timeout = call.timeout;
    made->signature = signatureOf(call.operation, call.common);
    countCall();
    const c10::Stream end = deviceEnd(device);
    auto enqueued =
        c10::make_intrusive<EnqueuedCall>(labelOf(made->signature), call.operation, call.inputs, call.outputs, end);
    made->done = [enqueued, &completion = membership->completion()](const Error& error) mutable {
      EnqueuedCall::onDone(std::move(enqueued), error, completion);
    };
    MemoryInFlight::Ranges touched = MemoryInFlight::of(inFlight().tensors(call.inputs, call.outputs));
    const c10::Stream after = beginning(touched, callers, end);
    membership->noteCallOnDevice();
    const CurrentDevice current(device.index());  // for all that is enqueued
    membership->group(call.timeout)
        .submit(std::move(*made), {.device = device.index(),
                                   .after = rawStream(after),
                                   .joined = rawStream(end),
                                   .poisoned = poisonedOf(call.outputs)});
    auto work = c10::make_intrusive<DeviceWork>(enqueued, call.outputs);
    work->isEnqueued(end);
    inFlight().add(std::move(touched), std::move(enqueued));
    coalescing().add(WorkPtr(work));
    return work;
  });
}

FairringBackend::DeviceWay FairringBackend::equipped(DeviceWay way, Membership& membership, const c10::Device& device,
                                                     std::chrono::milliseconds timeout) {
  const std::lock_guard trying(trying_);
  if (DeviceWay decided = deviceWay(membership, way.leastBytes, timeout);
      decided.isEquipped || !decided.whyNccls.empty()) {
    return decided;
  }
  Group& group = membership.group(timeout);
  way.whyNccls = membership.devices().firstReason("memory", group.equip(device.index(), timeout), timeout);
  way.isEquipped = true;
  if (!way.whyNccls.empty()) group.unequip();
  settle(way, membership, timeout);
  return way;
}

// The stream behind which the call begins: the caller's. If the call shares memory with others under way it is the one
// on which calls end, which then waits for these, NCCL's too.
c10::Stream FairringBackend::beginning(const MemoryInFlight::Ranges& touched, const c10::Stream& callers,
                                       const c10::Stream& end) {
  constexpr auto kWhose = MemoryInFlight::Whose::All;
  if (!inFlight().meets(touched, kWhose)) return callers;
  c10::Event called(end.device_type());
  called.record(callers);
  called.block(end);
  inFlight().holdBack(end, touched, kWhose);
  return end;
}

FairringBackend::DeviceWay FairringBackend::deviceWay(Membership& membership, std::uint64_t bytes,
                                                      std::chrono::milliseconds timeout) {
  const auto known = [&]() -> std::optional<DeviceWay> {
    const std::lock_guard lock(mutex_);
    const bool isEnough = deviceWay_ && (deviceWay_->isDecided || bytes < deviceWay_->leastBytes);
    return isEnough ? deviceWay_ : std::nullopt;
  };
  if (const auto way = known()) return *way;
  // To decide is to ask all ranks, once: of threads that make a group's first calls together one asks.
  const std::lock_guard deciding(deciding_);
  if (const auto way = known()) return *way;
  DeviceWay way = wayByFacts(membership, timeout);
  if (!way.isDecided && bytes >= way.leastBytes) way = decide(std::move(way), membership, timeout);
  settle(way, membership, timeout);
  return way;
}

void FairringBackend::settle(const DeviceWay& way, Membership& membership, std::chrono::milliseconds timeout) {
  std::string words;
  if (way.isEquipped || !way.whyNccls.empty()) {
    words = concat("reductions and all-gathers of CUDA tensors are ", wayOf(membership, way.whyNccls, timeout));
    if (!way.figures.empty()) words += concat("; by a trial, NCCL's time to Fairring's: ", way.figures);
    tellOnce(membership, way.whyNccls, words);
    membership.noteDeviceWay(words);
  }
  if (!way.whyNccls.empty()) inFlight().use(false);
  const std::lock_guard lock(mutex_);
  deviceWay_ = way;
}

bool FairringBackend::DeviceWay::takes(Pattern pattern, std::uint64_t bytes) const {
  if (!whyNccls.empty() || bytes < leastBytes) return false;
  if (leastByKind.empty()) return true;
  const auto kind = std::ranges::find(kTrialPatterns, pattern) - kTrialPatterns.begin();
  return bytes >= leastByKind.at(static_cast<std::size_t>(kind));
}

// By the facts that all ranks have published. Unless it is switched on explicitly, small calls are NCCL's, which has
// less latency; between sites that counts for less, because the network there takes longer than either.
FairringBackend::DeviceWay FairringBackend::wayByFacts(Membership& membership, std::chrono::milliseconds timeout) {
  constexpr std::uint64_t kLeastBytes = 1 << 20;
  constexpr std::uint64_t kLeastBytesBetweenSites = 64 << 10;
  const MembershipOptions& options = membership.options();
  if (!options.devices) return {.whyNccls = "FAIRRING_CUDA is off", .isDecided = true};
  const std::vector<RankFacts> facts = membership.factsOfAll(timeout);
  if (isOneMachine(facts)) return {.whyNccls = kOneMachine, .isDecided = true};  // whatever the devices are
  DeviceWay way{.whyNccls = deviceObstacle(facts)};
  if (options.devicesOnTrial && way.whyNccls.empty()) way.whyNccls = fasterByNccl(membership, facts);
  way.isDecided = !way.whyNccls.empty();
  const std::uint64_t least = areInOneSite(facts) ? kLeastBytes : kLeastBytesBetweenSites;
  way.leastBytes = options.leastOnDevice.value_or(options.devicesOnTrial ? least : 0);
  return way;
}

// By what the ranks tell of their devices. A group whose calls a trial may leave to NCCL is not connected for that:
// it would notice deaths then, and end by them, which no call of its needs.
FairringBackend::DeviceWay FairringBackend::decide(DeviceWay way, Membership& membership,
                                                   std::chrono::milliseconds timeout) const {
  const bool isAuto = membership.options().devicesOnTrial;
  if (!isAuto) membership.group(timeout).awaitDevice(timeout);
  std::vector<RankFacts> facts = membership.factsOfAll(timeout);
  way.whyNccls = membership.devices().askOfDevices(facts, timeout);
  if (way.whyNccls.empty()) way.whyNccls = tooSmallDevice(facts, isAuto ? kLeastBesideOthers : kLeastMultiprocessors);
  way.isOnTrial = isAuto && way.whyNccls.empty();
  way.isDecided = true;
  return way;
}

// Why NCCL is known to be faster without a trial. Between sites no rank's fabric reaches the others.
std::string FairringBackend::fasterByNccl(const Membership& membership, const std::vector<RankFacts>& facts) {
  if (!areInOneSite(facts)) return {};
  if (std::string reason = deviceFabric(facts); !reason.empty()) return reason;
  const Transport rail = membership.transportFor(facts).transports.rail;
  if (rail.takesLanes) return {};
  return concat("its rails would take ", rail.name, ", which NCCL takes without the host's memory");
}

FairringBackend::DeviceWay FairringBackend::tried(DeviceWay way, Membership& membership, const c10::Device& device,
                                                  std::chrono::milliseconds timeout) {
  const std::lock_guard trying(trying_);
  if (const DeviceWay decided = deviceWay(membership, way.leastBytes, timeout); !decided.isOnTrial) return decided;
  std::optional<TrialVerdict> verdict;
  try {
    const std::string layout = layoutOf(membership.factsOfAll(timeout), way.leastBytes);
    const auto stock = this->stock();
    DeviceTrial trial(membership, *stock, *nccl(*stock, {.device = device}), device, way.leastBytes, timeout,
                      areCallsOnDevicesOver);
    if (const auto earlier = rememberedByAll(membership, layout, timeout)) {
      verdict = trial.heed(*earlier);
    } else {
      bool isLasting = false;
      verdict = trial.run(isLasting);
      if (isLasting) rememberTrial(layout, *verdict);
    }
  } catch (const std::exception& exception) {
    // The ranks no longer know of each other how far they are, so no later call can begin where this one ended.
    const Error earlier = membership.error();
    const auto* failure = dynamic_cast<const Failure*>(&exception);
    membership.abort(failure != nullptr
                         ? failure->error()
                         : makeError(ErrorKind::System, "rank ", getRank(),
                                     " could not try Fairring's calls on CUDA tensors: ", exception.what())
                               .about({getRank()}));
    if (earlier) throw Failure(earlier);  // which has broken this off
    throw;
  }
  way.whyNccls = verdict->whyNccls;
  way.leastByKind = verdict->leastBytes;
  way.figures = verdict->figures;
  way.isOnTrial = false;
  settle(way, membership, timeout);
  return way;
}

// Groups of the same layout come to the same verdict.
std::string FairringBackend::layoutOf(const std::vector<RankFacts>& facts, std::uint64_t leastBytes) {
  std::string layout = concat(leastBytes);
  for (const Place& place : devicePlacesOf(facts)) layout += concat('\n', place.machine, '\t', place.site);
  return layout;
}

// The first device is that of the group's first call here. A rank's calls on other ones are NCCL's, which has a
// communicator for each.
bool FairringBackend::isOnFirstDevice(const at::Device& device) const {
  const std::lock_guard lock(mutex_);
  return !deviceEnd_ || deviceEnd_->device() == device;
}

// The stream on which calls end, one after the other.
c10::Stream FairringBackend::deviceEnd(const at::Device& device) {
  const std::lock_guard lock(mutex_);
  if (!deviceEnd_) deviceEnd_ = newCudaStream(device.index());
  return *deviceEnd_;
}

}  // namespace fairring
