// One process group on one rank: takes calls and carries them out with its peers. Made at the group's first use.
// The public methods may be called from any thread but one that the loop waits for; what they start runs on the loop.
// The first error wins, is told to the neighbours, which relay it, and ends all calls, those to come too.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/accelerator.h"
#include "device/device_chain.h"
#include "engine/call.h"
#include "exchange/point_to_point.h"
#include "exchange/traffic.h"
#include "group/call_table.h"
#include "group/rank_facts.h"
#include "group/settings.h"
#include "transport/acceptor.h"

namespace fairring {

class Group {
 public:
  // facts[r] is rank r's. `endpoint` is where this group's connections arrive, made when the group was.
  // Throws Failure where the facts don't fit together (settings that differ, memory too small).
  Group(Threads threads, std::shared_ptr<GroupEndpoint> endpoint, GroupSettings settings, std::vector<RankFacts> facts);
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // Leaves in good order: what the peers still need of what was completed here is delivered first. Waits for calls on a
  // device as long as the settings say, and breaks them off then.
  ~Group();

  // `waited`: the caller goes on to wait for it on this thread, and serves the loop meanwhile where it can.
  void submit(Call call, bool waited = false);
  // The same for tensors of a device, of an all-reduce, or of a reduce-scatter or all-gather whose blocks stand as
  // device/accelerator.h has them, behind what `after` holds so far. `joined` holds on until the result is there,
  // or the call has failed. Throws Failure where it can't be enqueued, or the group had failed before; the group has
  // failed then, and `joined` holds on until the device has left the tensors alone.
  using Results = std::vector<std::span<std::byte>>;  // those that are no numbers if the call has failed
  struct OnDevice {
    int device;
    Accelerator::Stream after;
    Accelerator::Stream joined;
    Results poisoned = {};
  };
  void submit(Call call, const OnDevice& where);
  // Before this rank waits for others outside of the group, with such calls in mind: notices who dies meanwhile.
  void awaitDevice(std::chrono::milliseconds timeout);
  // Makes what such calls need, on all ranks at once. Returns why this rank can't: it has no memory for staging. Empty:
  // it can. Throws Failure where anything else goes wrong; the group has failed then. unequip(), before any call, gives
  // all of it back: the calls are not for this group, for a rank that can't.
  std::string equip(int device, std::chrono::milliseconds timeout);
  void unequip();
  // Who has such calls, and why, in words: for the trace.
  void noteDeviceWay(std::string words);
  // Of a group that is equipped: for a trial, and for another group, which may go on with it once this one has ended.
  std::shared_ptr<Accelerator> accelerator();
  // Messages between two ranks; no other rank need have come to the group. They have no timers: a caller that waits for
  // one for too long says so, and then the group fails if it is still under way, on the loop.
  void send(Sending sending);
  void receive(Receiving receiving);
  void expire(TimedCall call, std::optional<int> peer, std::function<bool()> isUnderWay);
  // Enters a call that is made of messages; its number, to be told when it is over. An error: the group's.
  std::uint64_t enter(const Signature& signature);
  void ended(std::uint64_t number, const Error& error);
  std::uint64_t callsMade() const;
  // Calls 1 to the one returned are complete here, and no call that is under way becomes so any more: it ends with an
  // error. Waits for those so long before.
  std::uint64_t settle(std::chrono::milliseconds forThoseUnderWay);
  void abort(const Error& error);  // nothing, if there was an error before
  // Its end would wait for calls on a device. With this, calls that are under way end with an error before.
  void endUnfinished();
  Error error() const;             // the first one, if any
  bool isLinked() const;           // every connection with a neighbour has been there
  TrafficByLevel traffic() const;  // so far; waits for the loop
  // The trace of the last `calls` calls, in the form of trace.h; waits for the loop.
  // program: where the process's main thread stands.
  std::string trace(std::size_t calls, const std::string& program = "") const;
  // Puts that into the settings' directory, if there is one. Throws Failure(System) where it can't be written.
  void writeTrace(std::size_t calls, const std::string& program) const;

 private:
  void carryOn(std::function<void()> task);

  Threads threads_;
  const GroupSettings settings_;
  std::shared_ptr<class Member> member_;
  DeviceChain& chainOn(int device, std::chrono::milliseconds timeout);
  std::shared_ptr<Accelerator> makeAccelerator(int device, std::chrono::milliseconds timeout);
  void makeChain(int device, std::chrono::milliseconds timeout);
  void dropChain();
  void writeTraceAtEnd() const noexcept;
  Error named(const Error& error) const;
  void joinAll(Accelerator::Stream joined) noexcept;

  std::mutex order_;  // calls reach the loop, and a device, in the order in which they are numbered
  int device_ = -1;   // guarded by order_, and
  std::shared_ptr<DeviceChain>
      chain_;                     // of that device, made before the first call on it; ends after the member's part
  bool isGuarded_ = false;        // by the member, from the first call on
  std::future<void> chainEnded_;  // where there is one: before the group ends
};

}  // namespace fairring
