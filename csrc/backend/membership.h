// This rank's place in one group, from the store to the engine, in two steps.
//
// Made with the group, without waiting for any other rank: it publishes where this rank listens and its other facts
// (group/bootstrap.h). The engine follows at the group's first use, when the facts of all ranks are there. That
// waits for ranks that have not made the group yet, and moves on to a later generation if an accident closed this
// one.
//
// If the ranks of all are known beforehand (group/roster.h), nobody is waited for, and the engine can be made at
// once. There is no store then but one of the members' own, for NCCL (members_store.h).
//
// The first error of the group is announced, once, on the completion thread: to the owner of the membership, and to the
// store, where ranks look that still wait for others.
//
// Any thread; waits without the GIL (the callers release it).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend/abortable_store.h"
#include "backend/members_store.h"
#include "backend/runtime.h"
#include "backend/torch_key_value.h"
#include "device/nccl_limits.h"
#include "group/bootstrap.h"
#include "group/group.h"
#include "group/roster.h"
#include "group/trace.h"
#include "group/transport_choice.h"
#include "transport/tls.h"

namespace fairring {

struct MembershipOptions : BootstrapOptions, GroupTuning {
  std::vector<int> globalRanks;    // of the group's ranks: for NCCL
  RankFacts facts;                 // port is filled in here
  std::shared_ptr<const Tls> tls;  // none: plain connections
  ListenPorts ports;
  TransportSettings transport;
  std::uint32_t lanes = 1;                     // of TCP: connections to a peer of this site
  std::uint32_t siteLanes = 1;                 // and to one of another
  bool devices = false;                        // calls on CUDA tensors are the engine's
  bool devicesOnTrial = false;                 // and only where a trial of the group says so (device_trial.h)
  std::optional<std::uint64_t> leastOnDevice;  // bytes of such a call; none: what goes with the two
  NcclLimits ncclLimits;                       // of the communicators that it makes
  bool endsProcess = false;                    // an error of the group, once the other ranks can read of it
  bool endsProcessWithDevice = false;          // the same, if the group has made a call on CUDA tensors
  bool standsForGloo = false;                  // the program asked for Gloo
  bool reconfigurable = false;  // without members until it is reconfigured, and then with those that it is given

  // The ancestor of a shrunk group is the last group whose ranks met by a store or by their handles. Survivors may have
  // come to the same members by different groups in between, so all that they share follows from the ancestor.
  struct Ancestor {
    std::string name;
    Secret secret{};
    std::vector<int> ranks;  // there, of this group's ranks
  };
  std::optional<Ancestor> shrunkFrom;

  // The options of a group of these ranks of this one, this rank among them, in that order.
  MembershipOptions ofRanks(const std::vector<int>& ranks, std::string groupName) const;
};

class Membership {
 public:
  // On a thread of these; may outlive the membership. endsProcess: the process is about to end, and calls on CUDA
  // tensors stay where they are.
  using OnFailed = std::function<void(Completion&, bool endsProcess)>;

  Membership(const c10::intrusive_ptr<c10d::Store>& store, MembershipOptions options, OnFailed onFailed);
  // Makes one without a store; rank and size are the roster's. Its group id follows from the name and the secret.
  Membership(Roster roster, MembershipOptions options, OnFailed onFailed);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();  // leaves in good order; waits for what peers still need from here

  static std::shared_ptr<Runtime> runtimeFor(const MembershipOptions& options);
  // This rank's facts, with that runtime's addresses; looks for RDMA devices if the options want them.
  static RankFacts factsHere(const MembershipOptions& options, Runtime& runtime);

  // The engine; the first call makes it. Throws Failure if a rank does not come in time or settings differ.
  Group& group(std::chrono::milliseconds timeout);
  // The facts that all ranks have published; waits as group() does.
  std::vector<RankFacts> factsOfAll(std::chrono::milliseconds timeout);
  TransportChoice transportFor(const std::vector<RankFacts>& facts) const;
  // Some of this group's ranks as the members of another group, this rank among them. `purpose` tells it from other
  // groups of the same ranks. Waits as group() does, but a group whose ranks have met may have failed since.
  Roster rosterOf(const std::vector<int>& ranks, const std::string& purpose, std::chrono::milliseconds timeout);
  // The generation in which all ranks have met; waits for that as group() does. Where there is a roster there is one.
  static constexpr std::int64_t kOnlyGeneration = 1;
  std::int64_t generation(std::chrono::milliseconds timeout);
  // The store in which NCCL's ranks meet. With a roster it is the members' own, for which this waits.
  c10::intrusive_ptr<c10d::Store> store(std::chrono::milliseconds timeout) const;
  const std::shared_ptr<MembersStore>& membersStore() const { return membersStore_; }  // null without a roster
  // Waits so for no call in particular, and as long for ranks that have died, which may be started again. Returns the
  // key in the store that is there once all ranks have fetched the facts.
  std::string meetInBackground(std::chrono::milliseconds timeout);
  // As in Group; no effect if there is no engine.
  void expire(TimedCall call, std::optional<int> peer, std::function<bool()> isUnderWay);
  GroupId id();  // once the ranks have met
  // As in Group; none before the first use.
  std::uint64_t settle(std::chrono::milliseconds forThoseUnderWay);
  std::uint64_t callsMade() const;
  bool usesDevices() const { return options_.devices; }
  bool triesDevices() const { return options_.devicesOnTrial; }
  // A call is about to be made on a device, by NCCL or by the engine: later work reads its result, and no host waits.
  void noteCallOnDevice() { hasCallOnDevice_ = true; }
  void noteOwnCallOnDevice() { hasCallOnDevice_ = hasOwnCallOnDevice_ = true; }  // the engine's
  bool hasOwnCallOnDevice() const { return hasOwnCallOnDevice_; }
  std::optional<std::uint64_t> leastOnDevice() const { return options_.leastOnDevice; }
  // Another one of the same ranks, with the same settings, beside this one: its calls on a device may fail. This one
  // goes on with its accelerator, if it is told to, once the trial has passed on all ranks.
  std::unique_ptr<Membership> trial(std::chrono::milliseconds timeout) const;
  void adopt(std::shared_ptr<Accelerator> tried) { tried_ = std::move(tried); }
  // The answer of each rank, when all have answered. Throws Failure, of kind Usage if it was answered before: the old
  // answers would be taken for the new ones.
  std::vector<std::string> answersOfAll(const std::string& question, const std::string& mine,
                                        std::chrono::milliseconds timeout);
  // What each rank's devices lack, as firstReason() has it; fills in the other facts of the devices. Only now is the
  // driver asked, which a program without calls on a device may not have begun to use.
  std::string askOfDevices(std::vector<RankFacts>& facts, std::chrono::milliseconds timeout);
  // The first answer of any rank that is not empty, with the rank that gives it.
  std::string firstReason(const std::string& question, const std::string& mine, std::chrono::milliseconds timeout);
  void noteDeviceWay(const std::string& words);  // as Group has it; before the first use, for the group that it makes
  void endUnfinished();                          // as Group has it
  void giveUp();                                 // ends the wait for ranks, if there is one
  void abort(const Error& error);                // ends all calls, those to come too
  Error error() const;
  TrafficByLevel traffic() const;  // none before the first use
  // As Group has it. Before the first use it tells only for which ranks this one waits; empty where it does not.
  std::string trace(std::size_t calls, const std::string& program = "") const;
  void writeTrace(std::size_t calls, const std::string& program) const;
  Completion& completion() { return runtime_->completion(); }
  std::weak_ptr<Runtime> runtime() const { return runtime_; }

 private:
  BootstrapSteps bootstrapSteps();
  void listen(const std::string& name, const Secret& secret);
  bool wasRefused(int rank) const;  // by TLS, on either side
  const std::vector<RankFacts>& facts() const { return bootstrap_ ? bootstrap_->facts() : rosterFacts_; }
  std::size_t ranksOfMachine() const;
  void stopListening();
  void tellTransport() const;
  void equip(GroupSettings& settings);  // for calls on a device
  c10::intrusive_ptr<c10d::Store> deviceStore(std::chrono::milliseconds timeout);
  std::string deviceKey(const std::string& what) const;
  std::shared_ptr<Accelerator> makeDevice(int device, const std::vector<int>& machineRanks,
                                          std::chrono::milliseconds timeout);
  Error died(const std::vector<int>& dead);
  std::shared_ptr<Group> groupIfMade() const;
  struct Waiting {
    std::chrono::milliseconds timeout;
    std::chrono::nanoseconds forDead;  // once all have come
  };
  void meet(std::unique_lock<std::mutex>& making, const Waiting& waiting);
  void awaitFacts(std::unique_lock<std::mutex>& making, const Waiting& waiting);
  void announce(const Error& error);
  bool endsProcess(const Error& error) const;
  void lookForFailure(std::function<void(const Error&)> found);
  void note(const std::vector<int>& absent);
  TraceFacts factsOfWait() const;
  void pauseUnlessAborted(std::chrono::milliseconds pause);
  Error missedRanks(const std::vector<int>& missing, std::chrono::milliseconds timeout);
  void refuseIfAborted() const;

  const c10::intrusive_ptr<c10d::Store> store_;  // null if there is a roster
  const MembershipOptions options_;
  const std::shared_ptr<Runtime> runtime_;
  const OnFailed onFailed_;

  std::optional<TorchKeyValue> sharedKeys_;  // while the group is made; later looks have a connection of their own
  const std::vector<RankFacts> rosterFacts_;
  const std::shared_ptr<MembersStore> membersStore_;  // where there is a roster
  const std::shared_ptr<Alarm> hasFailed_ = std::make_shared<Alarm>();
  std::shared_ptr<Alarm> hasFailedBeside_;  // of a trial: that of the membership beside which it is made; else null
  std::shared_ptr<Accelerator> tried_;      // for the group's first call on a device; null: it makes one
  struct Asking {
    std::mutex mutex;  // guards the next; held while an answer of the store's is posted to the loop
    bool isOpen = true;
  };
  const std::shared_ptr<Asking> asking_ = std::make_shared<Asking>();
  std::atomic<bool> hasCallOnDevice_ = false;
  std::atomic<bool> hasOwnCallOnDevice_ = false;

  std::mutex making_;  // guards the two below; held while ranks are looked for; never taken by abort()
  std::shared_ptr<GroupEndpoint> endpoint_;
  std::unique_ptr<Bootstrap> bootstrap_;  // null if there is no store

  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<Group> group_;
  Error aborted_;
  std::string deviceWay_;  // as the group is to have it
  bool givenUp_ = false;
  bool announced_ = false;
  // A connection of its own, made while all is well: to make one to a store that has gone takes the store's timeout.
  c10::intrusive_ptr<c10d::Store> ownStore_;
  std::condition_variable aborting_;
  bool missed_ = false;             // a rank was waited for in vain
  std::vector<int> absent_;         // ranks that are waited for, as the last look at the store had it
  std::set<std::string> answered_;  // questions to all ranks
};

}  // namespace fairring
