// The loop's half of gated chains: moves the pinned bytes of slices whose other steps a device carries out
// (gated_rails.h), and opens the gates that the device waits at. It makes no call of the device.
// A slice is admitted, in order, when its place in the ring of staging is free; a step on the rails begins when the
// device has told that the bytes are out; its gate opens when the rails are ready with it.
// It owns no memory of the device's, so the loop may be the last to hold it: a task that the device had posted may be
// under way there while its chain ends.
// On the loop only; made by a caller. Invariant: a gate that is not open belongs to a slice that is under way here, or
// will be; fail() opens all of them, for ever.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "device/device_calls.h"
#include "device/gates.h"
#include "device/told_words.h"
#include "engine/staging.h"
#include "exchange/exchange.h"

namespace fairring {

class DeviceScheduler final : public DeviceCalls {
 public:
  // words: by which the device tells how far it is; fail() ends these too
  DeviceScheduler(Gates gates, std::uint64_t stagingBytes, std::shared_ptr<ToldWords> words)
      : gates_(gates), words_(std::move(words)), ring_(stagingBytes) {}

  void open(Exchange& rails) override;  // from now on slices are admitted; before, they only queue

  void begin(Call call) override;  // whose slices follow, in the order of their numbers
  // Its place in staging has been chosen; the device may be at its first gate already, or not have begun.
  void add(std::shared_ptr<Slice> slice, std::uint64_t stagingBytes, bool last);
  // The device has done all that comes before this step of the slice; past the last: all of it.
  void reached(std::uint64_t sequence, std::size_t step);

  void halt() override { rails_ = nullptr; }
  void fail(const Error& error) override;  // then opens all gates, for ever

  bool hasCalls() const override { return !calls_.empty(); }
  std::uint64_t completed() const override { return completed_; }
  const Call* oldestCall() const override { return calls_.empty() ? nullptr : &calls_.front()->call; }

 private:
  struct Pending {  // a call, until the device has finished all of its slices
    Call call;
    std::size_t unfinished = 0;
    bool cut = false;  // all of its slices have been added
  };
  struct UnderWay {
    std::shared_ptr<Slice> slice;
    std::shared_ptr<Pending> call;
    std::uint64_t stagingBytes;
    std::size_t unreleased;   // steps on the rails
    std::size_t step = 1;     // the next one on the rails
    std::size_t reached = 0;  // by the device
    bool admitted = false;
    bool running = false;
  };

  bool admitNext();
  void advance(std::uint64_t sequence);
  void onReady(std::uint64_t sequence);
  void onReleased(std::uint64_t sequence);
  void finish(const std::shared_ptr<Pending>& call);
  void retireIfOver(std::uint64_t sequence);
  static std::size_t stepsOf(const UnderWay& state) { return state.slice->plan->size(); }

  Gates gates_;
  const std::shared_ptr<ToldWords> words_;
  StagingRing ring_;
  Exchange* rails_ = nullptr;
  std::deque<std::shared_ptr<Pending>> calls_;
  std::map<std::uint64_t, UnderWay> slices_;  // by sequence number
  std::uint64_t admitted_ = 0;                // all slices below
  std::uint64_t completed_ = 0;
};

}  // namespace fairring
