// A device as the pipeline sees it: an exchange that carries out all steps of a slice on a device. Those of level 0 are
// in the slice's chain (device_chain.h), and over when the device has told so. Those on the rails the loop's rails
// carry out with the slice's pinned bytes; what they bring, the device sums. In between stand gates: one opens when the
// slice has its staging, one when contributions have come, and one when level 0 may go on. It makes no call of the
// device, and owns no memory of the device's, so the loop may be the last to hold it: a task that the device had posted
// may be under way there while its chain ends. On the loop only; made by a caller. Invariant: a gate that is not open
// belongs to a slice that is under way, or will be; openForEver() opens all of them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "device/gates.h"
#include "device/told_words.h"
#include "engine/pipeline.h"
#include "exchange/exchange.h"

namespace fairring {

class DeviceExchange final : public Exchange {
 public:
  // words: by which the device tells how far it is; stop() ends these too. staging: the pinned bytes of slices, which
  // the chain owns
  DeviceExchange(Gates gates, std::shared_ptr<ToldWords> words, std::span<std::byte> staging)
      : gates_(gates), words_(std::move(words)), staging_(staging) {}

  void attach(Pipeline& pipeline, Exchange& rails);  // before the first call
  // The device may be at its first gate already, or not have begun.
  void add(std::shared_ptr<Slice> slice, const Pipeline::Placement& placement);
  // The device has done all that comes before this step of the slice; past the last: all of it.
  void reached(std::uint64_t sequence, std::size_t step);
  // Stops, and lets the device go on, which poisons the results of calls that have not ended. After the calls' ends:
  // whoever comes through a gate finds the error.
  void openForEver();
  const Gates& gates() const { return gates_; }  // any thread
  std::span<std::byte> staging() const { return staging_; }

  void admit(const std::shared_ptr<Slice>& slice) override;
  void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) override;
  void stop() override;
  // The rails know which ranks are missing, and which need something; the device itself waits for its machine's.
  std::set<int> missing() const override { return {}; }
  bool needs(int, const Watermarks&) const override { return false; }

 private:
  struct Progress {  // of the device with a slice
    std::size_t reached = 0;
    std::size_t awaited = 0;
    std::function<void()> then;  // once that is reached; null: nothing is awaited
  };

  void await(std::uint64_t sequence, std::size_t step, std::function<void()> then);
  void onBrought(const Slice& slice, std::size_t step, const std::function<void()>& ready);

  Gates gates_;
  const std::shared_ptr<ToldWords> words_;
  const std::span<std::byte> staging_;
  Pipeline* pipeline_ = nullptr;  // null once it is stopped
  Exchange* rails_ = nullptr;
  std::map<std::uint64_t, Progress> slices_;  // by sequence number
};

}  // namespace fairring
