#include "backend/coalescing.h"

#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/nccl_work.h"

namespace fairring {
namespace {

using Clock = std::chrono::steady_clock;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

class CoalescedWork final : public c10d::Work {
 public:
  explicit CoalescedWork(std::vector<Coalescing::WorkPtr> works)
      : Work(-1, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::ranges::all_of(works_, [](const auto& work) { return work->isSuccess(); });
  }
  std::exception_ptr exception() const override {
    const auto failed = std::ranges::find_if(works_, [](const auto& work) { return work->exception() != nullptr; });
    return failed == works_.end() ? nullptr : (*failed)->exception();
  }
  void synchronize() override { wait(kNoTimeout); }
  // The future of a call on a device is complete from the beginning, so c10d's way by a future would not wait.
  void blockCurrentStream() override {
    for (const auto& work : works_) work->blockCurrentStream();
  }
  std::vector<at::Tensor> result() override;
  bool wait(std::chrono::milliseconds timeout) override;
  FuturePtr getFuture() override;

 private:
  const std::vector<Coalescing::WorkPtr> works_;
};

// The timeout is for all calls together: each gets the time left, at least a millisecond, since zero means no limit.
bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  for (const auto& work : works_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    work->wait(timeout <= kNoTimeout ? kNoTimeout : std::max(left, std::chrono::milliseconds(1)));
  }
  return true;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    for (at::Tensor& tensor : work->result()) all.push_back(std::move(tensor));
  }
  return all;
}

// Holds a list with each call's own value.
FuturePtr CoalescedWork::getFuture() {
  c10::List<FuturePtr> futures(c10::FutureType::create(c10::AnyType::get()));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  return c10::collectAll(futures);
}

}  // namespace

void Coalescing::start() {
  if (isOpen()) end();
  const std::lock_guard lock(mutex_);
  calls_.emplace();
}

void Coalescing::add(const WorkPtr& work) {
  const std::lock_guard lock(mutex_);
  if (calls_) calls_->works.push_back(work);
}

void Coalescing::add(const BackendPtr& stock) {
  const std::lock_guard lock(mutex_);
  if (!calls_ || calls_->stocks.contains(stock) || !stock->supportsCoalescing()) return;
  stock->startCoalescing();
  calls_->stocks.insert(stock);
}

bool Coalescing::isOpen() const {
  const std::lock_guard lock(mutex_);
  return calls_.has_value();
}

bool Coalescing::hasStock() const {
  const std::lock_guard lock(mutex_);
  return calls_ && !calls_->stocks.empty();
}

bool Coalescing::forget(const std::function<bool(const BackendPtr&)>& isOne) {
  const std::lock_guard lock(mutex_);
  return calls_ && std::erase_if(calls_->stocks, isOne) > 0;
}

Coalescing::WorkPtr Coalescing::end() {
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_WITH(ValueError, calls_, "coalescing has not been started");
    calls = std::exchange(calls_, std::nullopt).value_or(Calls{});
  }
  for (const BackendPtr& stock : calls.stocks) {
    if (WorkPtr work = NcclWork::of(stock, stock->endCoalescing())) calls.works.push_back(std::move(work));
  }
  if (calls.works.empty()) return nullptr;
  return c10::make_intrusive<CoalescedWork>(std::move(calls.works));
}

}  // namespace fairring
