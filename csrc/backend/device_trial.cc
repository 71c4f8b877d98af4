#include "backend/device_trial.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda_device.h"
#include "backend/fairring_backend.h"
#include "backend/reduction.h"

namespace fairring {
namespace {

using Word = Accelerator::Word;
using TrialClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTrial{5};         // for a rank's own device, and for the sums
constexpr std::chrono::seconds kTrialMaking{60};  // for communicators, connections and the program's earlier work
constexpr std::chrono::milliseconds kIntoDriver{20};
constexpr Word kOpenForEver = Word{1} << 62;

bool comesBefore(TrialClock::time_point deadline, const std::function<bool()>& condition) {
  while (!condition()) {
    if (TrialClock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

// Streams at gates of this trial's own; all gates are open once it ends, however it ends.
class GatesOnTrial {
 public:
  // The memory outlives the accelerator, because streams write there.
  GatesOnTrial(Accelerator& accelerator, Accelerator::Memory& memory) : accelerator_(accelerator) {
    memory = accelerator.pinned((kTold + accelerator.streams() + 1) * kLine);
    words_ = memory.get();
  }
  ~GatesOnTrial() { openAll(); }
  GatesOnTrial(const GatesOnTrial&) = delete;
  GatesOnTrial& operator=(const GatesOnTrial&) = delete;

  // All streams stand at gates; the first one reports behind its gate, stands at a second one, and reports again.
  void shut() {
    for (std::size_t i = 0; i < accelerator_.streams(); ++i)
      accelerator_.gate(accelerator_.stream(i), word(kTold + i), 1);
    accelerator_.gate(accelerator_.tellingStream(), word(kTold + accelerator_.streams()), 1);
    tell(kFirst);
    accelerator_.gate(accelerator_.stream(0), word(kSecondGate), 1);
    tell(kSecond);
  }
  void openFirst() { write(kTold, 1); }
  void openSecond() { write(kSecondGate, 1); }
  void openAll() {
    for (std::size_t i = 0; i < kTold + accelerator_.streams() + 1; ++i) write(i, kOpenForEver);
  }
  bool hasToldFirst() const { return read(kFirst); }
  bool hasToldSecond() const { return read(kSecond); }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kFirst = 0;
  static constexpr std::size_t kSecond = 1;
  static constexpr std::size_t kSecondGate = 2;
  static constexpr std::size_t kTold = 3;  // from here on the gates of all streams

  Word* word(std::size_t index) const { return reinterpret_cast<Word*>(words_ + index * kLine); }
  void write(std::size_t index, Word value) { std::atomic_ref(*word(index)).store(value, std::memory_order_release); }
  bool read(std::size_t index) const { return std::atomic_ref(*word(index)).load(std::memory_order_acquire) != 0; }
  void tell(std::size_t index) { accelerator_.write(accelerator_.stream(0), word(index), 1); }

  Accelerator& accelerator_;
  std::byte* words_;
};

// A thread that allocates memory and frees it, for which it may have to wait until the device is idle.
class Allocating {
 public:
  explicit Allocating(Accelerator& accelerator)
      : thread_([this, &accelerator] {
          try {
            while (!over_) {
              accelerator.pinned(kBytes);
              accelerator.device(kBytes);
            }
          } catch (const Failure&) {
            return;  // no memory; the trial's own calls will report that
          }
        }) {}
  ~Allocating() {
    over_ = true;
    thread_.join();
  }
  Allocating(const Allocating&) = delete;
  Allocating& operator=(const Allocating&) = delete;

 private:
  static constexpr std::uint64_t kBytes = 4096;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// The work of a program in its own stream: a kernel, and a copy to the host.
class ProgramOnTrial {
 public:
  explicit ProgramOnTrial(const c10::Device& device)
      : stream_(c10::impl::VirtualGuardImpl(device.type()).getStream(device)),
        on_(at::zeros({16}, at::TensorOptions().device(device).dtype(at::kFloat))),
        host_(at::empty({16}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true))) {}

  bool runsBefore(TrialClock::time_point deadline) {
    on_.add_(1);
    host_.copy_(on_, true);
    c10::Event end(stream_.device_type());
    end.record(stream_);
    return comesBefore(deadline, [&] { return end.query(); });
  }

 private:
  const c10::Stream stream_;
  at::Tensor on_;
  at::Tensor host_;
};

// Small integers, whose sums are exact in any order of additions, in bf16 too. They differ between any two ranks.
at::Tensor trialValues(at::ScalarType dtype, const c10::Device& device, int rank) {
  constexpr std::int64_t kBytes = (1 << 20) + 64;
  constexpr int kMostRanks = 128;
  const auto elements = kBytes / static_cast<std::int64_t>(c10::elementSize(dtype));
  const at::Tensor places = at::arange(elements, at::TensorOptions().device(device).dtype(at::kLong));
  if (rank >= kMostRanks) return places.mul(0).to(dtype);
  return places.add(rank).remainder(rank + 2).eq(0).to(dtype);
}

// 0: none.
std::chrono::milliseconds withinTimeout(std::chrono::milliseconds limit, std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? std::min(limit, timeout) : limit;
}

// Empty if the call has ended well.
std::string runOnTrial(Membership& trial, const at::Tensor& tensor, const c10::Stream& callers, const c10::Stream& end,
                       std::chrono::milliseconds limit) {
  const auto over = std::make_shared<std::promise<Error>>();
  const Reduction reduction =
      contributionOnDevice("all_reduce", c10d::ReduceOp::SUM, tensor.scalar_type(), 1).reduction;
  Call call;
  call.operands = {{tensor.data_ptr(), ownElements(tensor), reduction}};
  call.timeout = limit;
  call.signature.text = Text(concat("the trial of FAIRRING_CUDA=auto, ", tensor.nbytes(), " bytes"));
  call.done = [over](const Error& error) { over->set_value(error); };
  c10::impl::VirtualGuardImpl(end.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), end);
  trial.group(limit).submit(std::move(call),
                            {.device = end.device_index(), .after = rawStream(callers), .joined = rawStream(end)});
  auto ended = over->get_future();
  const Error error = ended.get();  // it has a timer
  return error ? error.text() : "";
}

}  // namespace

std::string tryDevice(const c10::Device& device, int rank, std::chrono::milliseconds timeout) try {
  // Before anything that may wait for the device without a limit. All ranks wait for this one meanwhile.
  const std::chrono::milliseconds patience = withinTimeout(kTrialMaking, timeout / 2);
  ProgramOnTrial program(device);
  if (!program.runsBefore(TrialClock::now() + patience)) {
    return concat("the device was busy with earlier work of the program's for ", patience.count(), " ms");
  }
  Accelerator::Memory memory;
  const std::unique_ptr<Accelerator> accelerator = makeAccelerator({.device = device.index(),
                                                                    .rank = rank,
                                                                    .world = 1,
                                                                    .index = 0,
                                                                    .count = 1,
                                                                    .fromFirst = [](const auto& mine) { return mine; },
                                                                    .fromFirstOfAll = nullptr,
                                                                    .timeout = timeout});
  const auto deadline = TrialClock::now() + kTrial;
  GatesOnTrial gates(*accelerator, memory);
  gates.shut();
  const auto soon = std::min(deadline, TrialClock::now() + kTrial / 4);
  if (!program.runsBefore(soon)) {
    return "kernels and copies of the program's stand still behind streams at gates, with which they share a hardware "
           "queue";
  }
  const Allocating allocating(*accelerator);  // possibly until the device is idle, that is, until all gates are open
  std::this_thread::sleep_for(kIntoDriver);
  const char* const untold = "the device does not tell how far it is while a thread waits in the driver for memory";
  const char* const past = "streams don't stand at gates";
  std::string reason = gates.hasToldFirst() ? past : "";
  gates.openFirst();
  if (reason.empty() && !comesBefore(deadline, [&] { return gates.hasToldFirst(); })) reason = untold;
  if (reason.empty() && gates.hasToldSecond()) reason = past;
  gates.openSecond();
  if (reason.empty() && !comesBefore(deadline, [&] { return gates.hasToldSecond(); })) reason = untold;
  gates.openAll();
  return reason;
} catch (const Failure& failure) {
  return failure.error().text();
} catch (const c10::Error& error) {
  return error.what_without_backtrace();
}

std::string trySums(Membership& trial, c10d::Backend& nccl, const c10::Device& device,
                    std::chrono::milliseconds timeout) try {
  const c10::Stream callers = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const c10::Stream end = newCudaStream(device.index());
  const int rank = nccl.getRank();
  std::chrono::milliseconds limit = withinTimeout(kTrialMaking, timeout);
  for (const at::ScalarType dtype : {at::kFloat, at::kFloat, at::kBFloat16}) {  // the first round makes what they need
    std::vector<at::Tensor> theirs{trialValues(dtype, device, rank)};
    const at::Tensor ours = theirs.front().clone();
    nccl.allreduce(theirs, c10d::AllreduceOptions())->wait();
    if (std::string reason = runOnTrial(trial, ours, callers, end, limit); !reason.empty()) return reason;
    c10::Event done(device.type());
    done.record(end);
    done.block(callers);
    if (!ours.equal(theirs.front())) {
      return concat("sums of ", theirs.front().nbytes(), " bytes of ", c10::toString(dtype), " differ from NCCL's");
    }
    limit = withinTimeout(kTrial, timeout);
  }
  return "";
} catch (const Failure& failure) {
  return failure.error().text();
} catch (const c10::Error& error) {
  return error.what_without_backtrace();
}

FairringBackend::DeviceWay FairringBackend::tried(DeviceWay way, Membership& membership, const c10::Device& device,
                                                  std::chrono::milliseconds timeout) {
  const std::lock_guard trying(trying_);
  if (const DeviceWay decided = deviceWay(membership, timeout); !decided.isOnTrial) return decided;
  const std::string onDevice = tryDevice(device, getRank(), timeout);
  way.whyNccls = firstReason(membership, "device", onDevice, timeout);
  if (way.whyNccls.empty()) {
    way.whyNccls = firstReason(membership, "sums", trialInSums(membership, device, timeout), timeout);
  }
  way.isOnTrial = false;
  settle(way, membership, timeout);
  return way;
}

std::string FairringBackend::trialInSums(Membership& membership, const c10::Device& device,
                                         std::chrono::milliseconds timeout) {
  const BackendPtr stock = nccl();
  const std::unique_ptr<Membership> trial = membership.trial(timeout);
  return trySums(*trial, *stock, device, timeout);
}

std::string FairringBackend::firstReason(Membership& membership, const std::string& question, const std::string& mine,
                                         std::chrono::milliseconds timeout) {
  const std::vector<RankFacts> facts = membership.factsOfAll(timeout);
  const std::vector<std::string> reasons = membership.answersOfAll(question, mine, timeout);
  for (std::size_t rank = 0; rank < reasons.size(); ++rank) {
    if (!reasons[rank].empty()) return concat("rank ", rank, " (", facts.at(rank).hostname, "): ", reasons[rank]);
  }
  return {};
}

}  // namespace fairring
