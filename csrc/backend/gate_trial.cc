#include "backend/gate_trial.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "backend/cuda_device.h"

namespace fairring {
namespace {

using Word = Accelerator::Word;
using TrialClock = GateTrial::Clock;

constexpr std::chrono::milliseconds kPastGates{20};  // more than a device takes for what stands behind gates
constexpr Word kOpenForEver = Word{1} << 62;

// Streams at gates of this trial's own; all gates are open once it ends, however it ends.
class GatesOnTrial {
 public:
  explicit GatesOnTrial(Accelerator& accelerator)
      : accelerator_(accelerator),
        memory_(accelerator.pinned((kTold + 3 * accelerator.streams()) * kLine)),
        copied_(accelerator.device(accelerator.streams() * kLine)) {}
  ~GatesOnTrial() { openAll(); }
  GatesOnTrial(const GatesOnTrial&) = delete;
  GatesOnTrial& operator=(const GatesOnTrial&) = delete;

  // All streams stand at gates, with copies both ways behind them, and report at the end; the first one reports behind
  // its gate, too, stands at a second one, and reports again.
  void shut() {
    for (std::size_t i = 0; i < accelerator_.streams(); ++i) {
      const Accelerator::Stream stream = accelerator_.stream(i);
      accelerator_.gate(stream, word(kTold + i), 1);
      std::byte* const host = memory_.get() + (kTold + accelerator_.streams() + i) * kLine;
      accelerator_.copyOut(stream, host, copied_.get() + i * kLine, kLine);
      accelerator_.copyIn(stream, copied_.get() + i * kLine, host, kLine);
      if (i == 0) {
        tell(i, kFirst);
        accelerator_.gate(stream, word(kSecondGate), 1);
        tell(i, kSecond);
      }
      tell(i, ended(i));
    }
  }
  void openFirst() { write(kTold, 1); }
  void openSecond() { write(kSecondGate, 1); }
  void openAll() {
    for (std::size_t i = 0; i < kTold + accelerator_.streams(); ++i) write(i, kOpenForEver);
  }
  bool hasToldFirst() const { return read(kFirst); }
  bool hasToldSecond() const { return read(kSecond); }
  // No stream uses this one's memory any more.
  bool haveEnded() const {
    for (std::size_t i = 0; i < accelerator_.streams(); ++i) {
      if (!read(ended(i))) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kFirst = 0;
  static constexpr std::size_t kSecond = 1;
  static constexpr std::size_t kSecondGate = 2;
  static constexpr std::size_t kTold = 3;  // from here on the gates of all streams

  std::size_t ended(std::size_t stream) const { return kTold + 2 * accelerator_.streams() + stream; }
  Word* word(std::size_t index) const { return reinterpret_cast<Word*>(memory_.get() + index * kLine); }
  void write(std::size_t index, Word value) { std::atomic_ref(*word(index)).store(value, std::memory_order_release); }
  bool read(std::size_t index) const { return std::atomic_ref(*word(index)).load(std::memory_order_acquire) != 0; }
  void tell(std::size_t stream, std::size_t index) { accelerator_.write(accelerator_.stream(stream), word(index), 1); }

  Accelerator& accelerator_;
  const Accelerator::Memory memory_;
  const Accelerator::Memory copied_;
};

// The work of a program in a stream: a kernel, and copies to the host and back. Its memory is the caller's stream's.
class ProgramOnTrial {
 public:
  explicit ProgramOnTrial(const c10::Stream& stream)
      : stream_(stream),
        host_(at::empty({16}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true))),
        end_(stream.device_type()),
        on_(at::zeros({16}, at::TensorOptions().device(stream.device()).dtype(at::kFloat))) {
    c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(on_.storage().data_ptr(), stream);
  }

  void enqueue() {
    const c10::StreamGuard current(stream_);
    on_.add_(1);
    host_.copy_(on_, true);
    on_.copy_(host_, true);
    end_.record(stream_);
  }
  bool endsBefore(TrialClock::time_point deadline) {
    return GateTrial::comesBefore(deadline, [this] { return end_.query(); });
  }

 private:
  c10::Stream stream_;
  at::Tensor host_;
  c10::Event end_;
  at::Tensor on_;
};

}  // namespace

bool GateTrial::comesBefore(Clock::time_point deadline, const std::function<bool()>& condition) {
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

std::string GateTrial::awaitEarlierWork(std::chrono::milliseconds patience,
                                        const std::function<bool()>& areCallsOver) const {
  const c10::Stream callers = callersStream(device_);
  c10::Event reached(callers.device_type());
  reached.record(callers);
  const auto deadline = TrialClock::now() + patience;
  const auto isOver = [&] { return reached.query() && areCallsOver(); };
  if (comesBefore(deadline, isOver)) return "";
  return concat("the device was busy with earlier work of the program's for ", patience.count(), " ms");
}

std::string GateTrial::run(Accelerator& accelerator) {
  const c10::impl::VirtualGuardImpl streams(device_.type());
  std::vector<ProgramOnTrial> program;
  program.reserve(2 + 2 * kSideStreams);
  program.emplace_back(callersStream(device_));
  program.emplace_back(streams.getDefaultStream(device_));
  for (int i = 0; i < kSideStreams; ++i) {
    for (const bool isHighPriority : {false, true})
      program.emplace_back(streams.getStreamFromGlobalPool(device_, isHighPriority));
  }
  c10::Event filled(device_.type());
  filled.record(callersStream(device_));
  filled.synchronize();
  const auto deadline = TrialClock::now() + kLimit;
  GatesOnTrial gates(accelerator);
  gates.shut();
  const auto soon = std::min(deadline, TrialClock::now() + kLimit / 4);
  for (ProgramOnTrial& one : program) one.enqueue();
  if (!program[0].endsBefore(soon) || !program[1].endsBefore(soon)) {
    return "kernels and copies of the program's stand still behind streams at gates, with which they share a hardware "
           "queue";
  }
  const auto already = TrialClock::now() + kPastGates;
  heldBack_ = 0;
  for (auto side = program.begin() + 2; side != program.end(); ++side) heldBack_ += side->endsBefore(already) ? 0 : 1;
  const char* const untold = "the device does not tell how far it is";
  const char* const past = "streams don't stand at gates";
  std::string reason = comesBefore(already, [&] { return gates.hasToldFirst(); }) ? past : "";
  gates.openFirst();
  if (reason.empty() && !comesBefore(deadline, [&] { return gates.hasToldFirst(); })) reason = untold;
  if (reason.empty() && gates.hasToldSecond()) reason = past;
  gates.openSecond();
  if (reason.empty() && !comesBefore(deadline, [&] { return gates.hasToldSecond(); })) reason = untold;
  gates.openAll();
  if (!comesBefore(deadline, [&] { return gates.haveEnded(); }) && reason.empty()) reason = untold;
  return reason;
}

}  // namespace fairring
