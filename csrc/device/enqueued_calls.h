// The loop's half where a device carries out whole calls by itself: the loop only knows which are under way, so that
// they have timers and ends. On the loop only.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include "device/device_calls.h"
#include "device/told_words.h"

namespace fairring {

class EnqueuedCalls final : public DeviceCalls {
 public:
  explicit EnqueuedCalls(std::shared_ptr<ToldWords> words) : words_(std::move(words)) {}

  void open(Exchange&) override {}
  void begin(Call call) override { calls_.push_back(std::move(call)); }
  void end();  // the device has finished the oldest
  void halt() override {}
  void fail(const Error& error) override;

  bool hasCalls() const override { return !calls_.empty(); }
  std::uint64_t completed() const override { return 0; }
  const Call* oldestCall() const override { return calls_.empty() ? nullptr : &calls_.front(); }

 private:
  const std::shared_ptr<ToldWords> words_;
  std::deque<Call> calls_;
};

}  // namespace fairring
