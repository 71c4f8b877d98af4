#include "backend/device_trial.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda_device.h"
#include "backend/reduction.h"
#include "base/fields.h"

namespace fairring {
namespace {

using Word = Accelerator::Word;
using TrialClock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::chrono::seconds kTrial{5};         // for a rank's own device, for each call, and for the figures
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
    memory = accelerator.pinned((kTold + 2 * accelerator.streams() + 1) * kLine);
    words_ = memory.get();
    copied_ = accelerator.device(accelerator.streams() * kLine);
  }
  ~GatesOnTrial() { openAll(); }
  GatesOnTrial(const GatesOnTrial&) = delete;
  GatesOnTrial& operator=(const GatesOnTrial&) = delete;

  // All streams stand at gates, with copies both ways behind them; the first one reports behind its gate, stands at a
  // second one, and reports again.
  void shut() {
    for (std::size_t i = 0; i < accelerator_.streams(); ++i) {
      const Accelerator::Stream stream = accelerator_.stream(i);
      accelerator_.gate(stream, word(kTold + i), 1);
      std::byte* const host = words_ + (kTold + accelerator_.streams() + 1 + i) * kLine;
      accelerator_.copyOut(stream, host, copied_.get() + i * kLine, kLine);
      accelerator_.copyIn(stream, copied_.get() + i * kLine, host, kLine);
    }
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
  Accelerator::Memory copied_;
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
    return comesBefore(deadline, [this] { return end_.query(); });
  }

 private:
  c10::Stream stream_;
  at::Tensor host_;
  c10::Event end_;
  at::Tensor on_;
};

// 0: none.
std::chrono::milliseconds withinTimeout(std::chrono::milliseconds limit, std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? std::min(limit, timeout) : limit;
}

c10::Stream callersStream(const c10::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// What keeps this rank from going on, in words; empty: nothing.
std::string reasonOf(const std::function<std::string()>& attempt) {
  try {
    return attempt();
  } catch (const Failure& failure) {
    return failure.error().text();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {  // no memory, no thread
    return error.what();
  }
}

constexpr int kSideStreams = 4;  // as many as FSDP2 has

// This rank only: streams stand at gates, the program's kernels and copies get past them, and the device reports its
// progress to the host, even if another thread waits in the driver for memory. Counts the side streams of the program's
// that don't get past them: they share a hardware queue with a gate.
std::string tryGates(Accelerator& accelerator, const c10::Device& device, int& heldBack) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  std::vector<ProgramOnTrial> program;
  program.reserve(2 + kSideStreams);
  program.emplace_back(callersStream(device));
  program.emplace_back(streams.getDefaultStream(device));
  for (int i = 0; i < kSideStreams; ++i) program.emplace_back(streams.getStreamFromGlobalPool(device, false));
  c10::Event filled(device.type());
  filled.record(callersStream(device));
  filled.synchronize();
  Accelerator::Memory memory;
  const auto deadline = TrialClock::now() + kTrial;
  GatesOnTrial gates(accelerator, memory);
  gates.shut();
  const auto soon = std::min(deadline, TrialClock::now() + kTrial / 4);
  for (ProgramOnTrial& one : program) one.enqueue();
  if (!program[0].endsBefore(soon) || !program[1].endsBefore(soon)) {
    return "kernels and copies of the program's stand still behind streams at gates, with which they share a hardware "
           "queue";
  }
  const auto already = std::min(soon, TrialClock::now() + kIntoDriver);
  heldBack = 0;
  for (auto side = program.begin() + 2; side != program.end(); ++side) heldBack += side->endsBefore(already) ? 0 : 1;
  const Allocating allocating(accelerator);  // possibly until the device is idle, that is, until all gates are open
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
}

// Small integers, whose sums are exact in any order of additions, in bf16 too. They differ between any two ranks.
at::Tensor trialValues(std::int64_t elements, at::ScalarType dtype, const c10::Device& device, int rank) {
  constexpr int kMostRanks = 128;
  const at::Tensor places = at::arange(elements, at::TensorOptions().device(device).dtype(at::kLong));
  if (rank >= kMostRanks) return places.mul(0).to(dtype);
  return places.add(rank).remainder(rank + 2).eq(0).to(dtype);
}

std::byte* dataOf(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

// All ranks at once: calls of one size and dtype, by either candidate.
class CallsOnTrial {
 public:
  static constexpr int kAtOnce = 3;
  static constexpr int kTurns = 3;
  // So many times the calls of check() are those of measure().
  static constexpr int kMeasuredToChecked = kTurns * (1 + kAtOnce);

  CallsOnTrial(Membership& trial, c10d::Backend& nccl, const c10::Stream& end, std::uint64_t bytes,
               at::ScalarType dtype)
      : trial_(trial), nccl_(nccl), end_(end), callers_(callersStream(end.device())), dtype_(dtype) {
    const std::int64_t ranks = nccl.getSize();
    const auto element = static_cast<std::int64_t>(c10::elementSize(dtype));
    blockElements_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes) / element / ranks);
    const auto options = at::TensorOptions().device(end.device()).dtype(dtype);
    for (int i = 0; i < kAtOnce; ++i) {
      wholes_.push_back(at::zeros({blockElements_ * ranks + kOdd / element}, options));
      parts_.push_back(at::zeros({blockElements_}, options));
    }
    const c10::impl::VirtualGuardImpl streams(end.device_type());
    for (const auto* tensors : {&wholes_, &parts_}) {
      for (const at::Tensor& tensor : *tensors) streams.recordDataPtrOnStream(tensor.storage().data_ptr(), end_);
    }
  }

  // Whether the results of each kind are NCCL's, bit by bit.
  std::string check(std::chrono::milliseconds limit) {
    const at::Tensor values = trialValues(wholes_[0].numel(), dtype_, end_.device(), nccl_.getRank());
    for (const Pattern pattern : kTrialPatterns) {
      for (int i = 0; i < 2; ++i) {
        wholes_[i].copy_(values);
        parts_[i].copy_(values.narrow(0, 0, blockElements_));
      }
      runNccls(pattern, 0);
      if (std::string reason = runOurs(pattern, 1, 1, limit); !reason.empty()) return reason;
      const auto& results = pattern == Pattern::ReduceScatter ? parts_ : wholes_;
      if (results[0].equal(results[1])) continue;
      return concat("results of the ", name(pattern), " of ", wholes_[0].nbytes(), " bytes of ", c10::toString(dtype_),
                    " differ from NCCL's");
    }
    return "";
  }

  // Of each kind, in turns.
  std::string measure(TrialFigures& figures) {
    for (const Pattern pattern : kTrialPatterns) {
      std::vector<std::uint64_t> taken[4];
      for (int turn = 0; turn < kTurns; ++turn) {
        for (const int calls : {1, kAtOnce}) {
          const std::size_t row = calls == 1 ? 0 : 2;
          taken[row].push_back(microsecondsOf([&] {
            for (int i = 0; i < calls; ++i) runNccls(pattern, i);
            awaitCallers();
          }));
          std::string reason;
          taken[row + 1].push_back(microsecondsOf([&] { reason = runOurs(pattern, 0, calls, kTrial); }));
          if (!reason.empty()) return reason;
        }
      }
      figures.times.push_back({median(taken[0]), median(taken[1]), median(taken[2]), median(taken[3])});
    }
    return "";
  }

  void awaitCallers() const {
    c10::Event done(callers_.device_type());
    done.record(callers_);
    done.synchronize();
  }

 private:
  static constexpr std::int64_t kOdd = 64;  // bytes that an all-reduce has more than blocks for all ranks

  static const char* name(Pattern pattern) {
    if (pattern == Pattern::AllReduce) return "all-reduce";
    return pattern == Pattern::ReduceScatter ? "reduce-scatter" : "all-gather";
  }
  static std::uint64_t median(std::vector<std::uint64_t>& values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  }
  static std::uint64_t microsecondsOf(const std::function<void()>& what) {
    const auto began = TrialClock::now();
    what();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<microseconds>(TrialClock::now() - began).count());
  }
  at::Tensor blocks(std::size_t index) const { return wholes_[index].narrow(0, 0, blockElements_ * nccl_.getSize()); }

  // Enqueued in the caller's stream.
  void runNccls(Pattern pattern, std::size_t index) {
    if (pattern == Pattern::AllReduce) {
      std::vector<at::Tensor> tensors{wholes_[index]};
      nccl_.allreduce(tensors, c10d::AllreduceOptions())->wait();
      return;
    }
    at::Tensor whole = blocks(index);
    at::Tensor part = parts_[index];
    const auto work = pattern == Pattern::ReduceScatter
                          ? nccl_._reduce_scatter_base(part, whole, c10d::ReduceScatterOptions())
                          : nccl_._allgather_base(whole, part, c10d::AllgatherOptions());
    work->wait();
  }

  // Of that many tensors, from one on, at once. Empty if all calls have ended well.
  std::string runOurs(Pattern pattern, std::size_t first, int calls, std::chrono::milliseconds limit) {
    std::vector<std::future<Error>> ends;
    for (std::size_t i = first; i < first + static_cast<std::size_t>(calls); ++i) {
      const auto over = std::make_shared<std::promise<Error>>();
      ends.push_back(over->get_future());
      Call call = callOf(pattern, i);
      call.timeout = limit;
      call.signature.text = Text(concat("the trial of FAIRRING_CUDA=auto, ", wholes_[i].nbytes(), " bytes"));
      call.done = [over](const Error& error) { over->set_value(error); };
      trial_.group(limit).submit(
          std::move(call), {.device = end_.device_index(), .after = rawStream(callers_), .joined = rawStream(end_)});
    }
    std::string reason;
    for (auto& end : ends) {
      const Error error = end.get();  // it has a timer
      if (error && reason.empty()) reason = error.text();
    }
    c10::Event done(end_.device_type());
    done.record(end_);
    done.block(callers_);
    return reason;
  }

  Call callOf(Pattern pattern, std::size_t index) const {
    Call call;
    const at::Tensor& part = parts_[index];
    const Reduction reduction =
        contributionOnDevice("all_reduce", c10d::ReduceOp::SUM, dtype_, nccl_.getSize()).reduction;
    if (pattern == Pattern::AllReduce) {
      call.operands = {{wholes_[index].data_ptr(), ownElements(wholes_[index]), reduction}};
      return call;
    }
    call.pattern = pattern;
    call.blocks.resize(static_cast<std::size_t>(nccl_.getSize()));
    for (std::size_t rank = 0; rank < call.blocks.size(); ++rank) {
      const bool isMine = rank == static_cast<std::size_t>(nccl_.getRank());
      std::byte* const at = dataOf(wholes_[index]) + rank * part.nbytes();
      if (pattern == Pattern::ReduceScatter) {
        call.blocks[rank].push_back(
            {.from = at, .to = isMine ? dataOf(part) : nullptr, .elements = ownElements(part), .reduction = reduction});
        continue;
      }
      Block block = bytesBlock(part);
      block.from = isMine ? dataOf(part) : nullptr;
      block.to = at;
      call.blocks[rank].push_back(block);
    }
    return call;
  }

  Membership& trial_;
  c10d::Backend& nccl_;
  const c10::Stream end_;
  const c10::Stream callers_;
  const at::ScalarType dtype_;
  std::int64_t blockElements_ = 0;
  std::vector<at::Tensor> wholes_;
  std::vector<at::Tensor> parts_;
};

// What a rank tells the others of its calls of one size.
struct StageOnTrial {
  std::string reason;         // empty: all went well
  std::uint64_t elapsed = 0;  // microseconds of them
  std::vector<TrialFigures> figures = {};

  static void fields(auto& row, auto& stage) { row(stage.reason, stage.elapsed, stage.figures); }
};

// The sizes from the least on, up to 8 MiB.
std::vector<std::uint64_t> sizesFrom(std::uint64_t least) {
  constexpr std::uint64_t kMost = 8 << 20;
  std::vector<std::uint64_t> sizes{std::min(least, kMost)};
  for (const std::uint64_t size : {std::uint64_t{64} << 10, std::uint64_t{1} << 20, kMost}) {
    if (size > sizes.back()) sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

DeviceTrial::DeviceTrial(Membership& real, c10d::Backend& nccl, const c10::Device& device, std::uint64_t leastBytes,
                         std::chrono::milliseconds timeout)
    : real_(real), nccl_(nccl), device_(device), leastBytes_(leastBytes), timeout_(timeout) {}

TrialVerdict DeviceTrial::run(bool& isLasting) {
  isLasting = false;
  if (std::string reason = real_.firstReason("busy", busy(), timeout_); !reason.empty())
    return TrialVerdict::allNccls(reason);
  const std::unique_ptr<Membership> trial = real_.trial(timeout_);
  const std::chrono::milliseconds limit = withinTimeout(kTrialMaking, timeout_);
  std::string reason = real_.firstReason(
      "trial's memory", reasonOf([&] { return trial->group(limit).equip(device_.index(), timeout_); }), timeout_);
  if (!reason.empty()) return TrialVerdict::allNccls(reason);
  isLasting = true;
  int heldBack = 0;
  reason = real_.firstReason(
      "device", reasonOf([&] { return tryGates(*trial->group(limit).accelerator(), device_, heldBack); }), timeout_);
  if (!reason.empty()) return TrialVerdict::allNccls(reason);
  TrialVerdict verdict = measured(*trial);
  if (heldBack > 0) {
    verdict.figures += concat("; here ", heldBack, " of ", kSideStreams, " side streams stand behind gates");
  }
  if (verdict.whyNccls.empty()) real_.adopt(trial->group(limit).accelerator());
  return verdict;
}

// Before anything that may wait for the device without a limit. All ranks wait for this one meanwhile.
std::string DeviceTrial::busy() const {
  return reasonOf([&]() -> std::string {
    const std::chrono::milliseconds patience = withinTimeout(kTrialMaking, timeout_ / 2);
    ProgramOnTrial program(callersStream(device_));
    program.enqueue();
    if (program.endsBefore(TrialClock::now() + patience)) return "";
    return concat("the device was busy with earlier work of the program's for ", patience.count(), " ms");
  });
}

TrialVerdict DeviceTrial::measured(Membership& trial) {
  const c10::Stream end = newCudaStream(device_.index());
  const std::vector<std::uint64_t> sizes = sizesFrom(leastBytes_);
  std::vector<TrialFigures> bySize;
  microseconds elapsed{0};  // of the slowest rank in each stage, so all ranks know it
  std::string reason;
  // A stage of all ranks; how long it took.
  const auto stage = [&](const std::string& question, const std::function<std::string(StageOnTrial&)>& attempt) {
    StageOnTrial mine;
    const auto began = TrialClock::now();
    mine.reason = reasonOf([&] { return attempt(mine); });
    mine.elapsed =
        static_cast<std::uint64_t>(std::chrono::duration_cast<microseconds>(TrialClock::now() - began).count());
    const std::vector<std::string> answers = real_.answersOfAll(question, toText(mine), timeout_);
    const std::vector<RankFacts> facts = real_.factsOfAll(timeout_);
    microseconds slowest{0};
    std::vector<TrialFigures> byRank;
    for (std::size_t rank = 0; rank < answers.size(); ++rank) {
      const auto one =
          valueOf<StageOnTrial>(answers[rank], ErrorKind::Connection, "rank ", rank,
                                " told in the trial of its calls on CUDA tensors ", shownOf(answers[rank]));
      if (reason.empty() && !one.reason.empty())
        reason = concat("rank ", rank, " (", facts.at(rank).hostname, "): ", one.reason);
      slowest = std::max(slowest, microseconds(one.elapsed));
      std::ranges::copy(one.figures, std::back_inserter(byRank));
    }
    if (reason.empty() && !byRank.empty()) bySize.push_back(slowestOf(byRank));
    return slowest;
  };
  const std::chrono::milliseconds patience = withinTimeout(kTrialMaking, timeout_);
  stage("first calls", [&](StageOnTrial&) {  // which make what all calls need
    return CallsOnTrial(trial, nccl_, end, sizes.front(), at::kBFloat16).check(patience);
  });
  microseconds last{0};
  for (std::size_t i = 0; i < sizes.size() && reason.empty(); ++i) {
    if (i > 0 && elapsed + last * (sizes[i] / sizes[i - 1]) > kTrial) break;
    std::optional<CallsOnTrial> calls;
    const microseconds checked = stage(concat("sums ", i), [&](StageOnTrial&) {
      calls.emplace(trial, nccl_, end, sizes[i], at::kFloat);
      calls->awaitCallers();
      return calls->check(withinTimeout(kTrial, timeout_));
    });
    elapsed += checked;
    if (!reason.empty() || elapsed + checked * CallsOnTrial::kMeasuredToChecked > kTrial) break;
    last = stage(concat("times ", i), [&](StageOnTrial& mine) {
      TrialFigures figures{.bytes = sizes[i], .times = {}};
      std::string why = calls->measure(figures);
      if (why.empty()) mine.figures.push_back(std::move(figures));
      return why;
    });
    elapsed += last;
  }
  if (!reason.empty()) return TrialVerdict::allNccls(reason);
  if (bySize.empty()) {
    return TrialVerdict::allNccls(concat("calls of ", sizes.front(), " bytes are too slow to be measured within ",
                                         kTrial.count(), " s: six of them took ", elapsed.count(), " us"));
  }
  TrialVerdict verdict = verdictOf(bySize);
  verdict.figures += concat("; measured in ", elapsed.count() / 1000, " ms");
  return verdict;
}

}  // namespace fairring
