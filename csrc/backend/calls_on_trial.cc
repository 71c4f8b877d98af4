#include "backend/calls_on_trial.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "backend/cuda_device.h"
#include "backend/reduction.h"

namespace fairring {
namespace {

using TrialClock = std::chrono::steady_clock;

constexpr std::int64_t kOdd = 64;  // bytes that an all-reduce has more than blocks for all ranks

// Small integers, whose sums are exact in any order of additions, in bf16 too. They differ between any two ranks.
at::Tensor trialValues(std::int64_t elements, at::ScalarType dtype, const c10::Device& device, int rank) {
  constexpr int kMostRanks = 128;
  const at::Tensor places = at::arange(elements, at::TensorOptions().device(device).dtype(at::kInt));
  if (rank >= kMostRanks) return places.mul(0).to(dtype);
  return places.add(rank).remainder(rank + 2).eq(0).to(dtype);
}

const char* name(Pattern pattern) {
  if (pattern == Pattern::AllReduce) return "all-reduce";
  return pattern == Pattern::ReduceScatter ? "reduce-scatter" : "all-gather";
}

std::uint64_t median(std::vector<std::uint64_t>& values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::uint64_t microsecondsOf(const std::function<void()>& what) {
  const auto began = TrialClock::now();
  what();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(TrialClock::now() - began).count());
}

void byNccl(const std::function<void()>& calls) {
  try {
    calls();
  } catch (...) {
    throw NcclsFailure(std::current_exception());
  }
}

}  // namespace

std::string reasonOf(const std::function<std::string()>& attempt) {
  try {
    return attempt();
  } catch (const NcclsFailure&) {
    throw;
  } catch (const Failure& failure) {
    return failure.error().text();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {  // no memory, no thread
    return error.what();
  }
}

CallsOnTrial::CallsOnTrial(Membership& trial, const StockNccl& stock, c10d::Backend& nccl, const c10::Stream& end,
                           std::uint64_t bytes, at::ScalarType dtype)
    : trial_(trial), stock_(stock), nccl_(nccl), end_(end), callers_(callersStream(end.device())), dtype_(dtype) {
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
  values_ = trialValues(wholes_[0].numel(), dtype_, end_.device(), nccl_.getRank());
}

void CallsOnTrial::tryOurs(const std::function<std::string()>& attempt) {
  if (!reason_.empty()) return;
  reason_ = reasonOf(attempt);
  if (!reason_.empty()) trial_.abort(makeError(ErrorKind::Aborted, "the trial of FAIRRING_CUDA=auto: ", reason_));
}

std::string CallsOnTrial::check(std::chrono::milliseconds limit) {
  for (const Pattern pattern : kTrialPatterns) {
    tryOurs([&] {
      for (int i = 0; i < 2; ++i) {
        wholes_[i].copy_(values_);
        parts_[i].copy_(values_.narrow(0, 0, blockElements_));
      }
      return "";
    });
    runNccls(pattern, 0);
    tryOurs([&] { return runOurs(pattern, 1, 1, limit); });
    tryOurs([&]() -> std::string {
      const auto& results = pattern == Pattern::ReduceScatter ? parts_ : wholes_;
      if (results[0].equal(results[1])) return "";
      return concat("results of the ", name(pattern), " of ", wholes_[0].nbytes(), " bytes of ", c10::toString(dtype_),
                    " differ from NCCL's");
    });
  }
  return reason_;
}

std::string CallsOnTrial::measure(TrialFigures& figures) {
  for (const Pattern pattern : kTrialPatterns) {
    std::vector<std::uint64_t> taken[4];
    for (int turn = 0; turn < kTurns; ++turn) {
      for (const int calls : {1, kAtOnce}) {
        const std::size_t row = calls == 1 ? 0 : 2;
        taken[row].push_back(microsecondsOf([&] {
          for (int i = 0; i < calls; ++i) runNccls(pattern, i);
          awaitCallers();
        }));
        taken[row + 1].push_back(microsecondsOf([&] { tryOurs([&] { return runOurs(pattern, 0, calls, kLimit); }); }));
      }
    }
    // Others may disturb one turn and not the next: that must not make Fairring's calls look faster.
    figures.times.push_back(
        {std::ranges::min(taken[0]), median(taken[1]), std::ranges::min(taken[2]), median(taken[3])});
  }
  return reason_;
}

void CallsOnTrial::awaitCallers() const {
  byNccl([&] {
    c10::Event done(callers_.device_type());
    done.record(callers_);
    done.synchronize();
  });
}

at::Tensor CallsOnTrial::blocks(std::size_t index) const {
  return wholes_[index].narrow(0, 0, blockElements_ * nccl_.getSize());
}

c10::intrusive_ptr<c10d::Work> CallsOnTrial::beginNccls(Pattern pattern, std::size_t index) {
  const auto beginning = stock_.beginning();
  TORCH_CHECK_WITH(DistBackendError, stock_.serves(nccl_), "this process group has failed, or was aborted");
  if (pattern == Pattern::AllReduce) {
    std::vector<at::Tensor> tensors{wholes_[index]};
    return nccl_.allreduce(tensors, c10d::AllreduceOptions());
  }
  at::Tensor whole = blocks(index);
  at::Tensor part = parts_[index];
  if (pattern == Pattern::AllGather) return nccl_._allgather_base(whole, part, c10d::AllgatherOptions());
  return nccl_._reduce_scatter_base(part, whole, c10d::ReduceScatterOptions());
}

// Enqueued in the caller's stream.
void CallsOnTrial::runNccls(Pattern pattern, std::size_t index) {
  byNccl([&] { beginNccls(pattern, index)->wait(); });
}

// So many tensors, from one on, at once. Empty if all calls have ended well.
std::string CallsOnTrial::runOurs(Pattern pattern, std::size_t first, int calls, std::chrono::milliseconds limit) {
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

Call CallsOnTrial::callOf(Pattern pattern, std::size_t index) const {
  Call call;
  call.pattern = pattern;
  std::vector<Contribution> contributions;
  if (pattern != Pattern::AllGather)
    contributions = {contributionOf("all_reduce", c10d::ReduceOp::SUM, dtype_, nccl_.getSize(), /*onDevice=*/true)};
  const at::Tensor& whole = wholes_[index];
  if (pattern == Pattern::AllReduce) {
    call.operands = {{whole.data_ptr(), ownElements(whole), contributions.front().reduction}};
  } else {
    call.blocks = rowsOnDevice({whole}, {parts_[index]}, contributions, nccl_.getRank(), nccl_.getSize());
  }
  return call;
}

}  // namespace fairring
