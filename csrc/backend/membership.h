// This rank's place in one group, from the store to the engine, in two steps.
//
// Made with the group, without waiting for any other rank: it publishes where this rank listens and its other facts.
// The engine follows at the group's first use, when all ranks have met (group/rendezvous.h).
//
// If the ranks of all are known beforehand (group/roster.h), nobody is waited for, and the engine can be made at
// once. There is no store then but one of the members' own, for NCCL (members_store.h).
//
// Any thread; waits without the GIL (the callers release it).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend/device_rendezvous.h"
#include "backend/failure_notice.h"
#include "backend/members_store.h"
#include "backend/runtime.h"
#include "device/nccl_limits.h"
#include "group/group.h"
#include "group/rendezvous.h"
#include "group/roster.h"
#include "group/trace.h"
#include "group/transport_choice.h"
#include "transport/lockable_memory.h"
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
  std::optional<std::size_t> helpers;          // threads that help the loop; none: by the cores
  std::size_t ranksHere = 0;                   // of the job on this machine, by the launcher; 0: it does not say
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

  void limitHeartbeats(std::chrono::milliseconds timeout);  // to that of the group; 0: it has none
  // The options of a group of these ranks of this one, this rank among them, in that order.
  MembershipOptions ofRanks(const std::vector<int>& ranks, std::string groupName) const;
};

class Membership {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using OnFailed = FailureNotice::OnFailed;  // may outlive the membership

  Membership(const StorePtr& store, MembershipOptions options, OnFailed onFailed);
  // Makes one without a store; rank and size are the roster's. Its group id follows from the name and the secret.
  Membership(Roster roster, MembershipOptions options, OnFailed onFailed);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  ~Membership();  // leaves in good order; waits for what peers still need from here

  static std::shared_ptr<Runtime> runtimeFor(const MembershipOptions& options);
  // This rank's facts, with that runtime's addresses; looks for RDMA devices if the options want them.
  // The promise becomes that of the memory that it would lock for RDMA.
  static RankFacts factsHere(const MembershipOptions& options, Runtime& runtime, LockableMemory::Promise& promise);

  // The engine; the first call makes it. Throws Failure if a rank does not come in time or settings differ.
  Group& group(std::chrono::milliseconds timeout);
  std::shared_ptr<Group> groupIfMade() const;  // null before the first use
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
  StorePtr store(std::chrono::milliseconds timeout) const;
  std::string key(const std::string& name) const;  // in that store, of this generation
  const std::shared_ptr<MembersStore>& membersStore() const { return membersStore_; }  // null without a roster
  // Waits so for no call in particular, and as long for ranks that have died, which may be started again. Returns the
  // key in the store that is there once all ranks have fetched the facts.
  std::string meetInBackground(std::chrono::milliseconds timeout);
  void giveUp();                   // ends the waits for ranks
  GroupId id() const;              // once the ranks have met
  void abort(const Error& error);  // ends all calls, those to come too
  Error error() const;
  std::stop_token failure() const { return failure_.get_token(); }  // stopped once the group has failed

  const MembershipOptions& options() const { return options_; }
  // A call is about to be made on a device, by NCCL or by the engine.
  void noteCallOnDevice() { notice_.noteCallOnDevice(); }
  DeviceRendezvous& devices() { return devices_; }
  // Another one of the same ranks, with the same settings, beside this one: its calls on a device may fail. This one
  // goes on with its accelerator, if it is told to, once the trial has passed on all ranks.
  std::unique_ptr<Membership> trial(std::chrono::milliseconds timeout) const;
  // Who has the calls on CUDA tensors, and why, in words; empty: nobody has asked.
  void noteDeviceWay(const std::string& words);
  std::string deviceWay() const;

  // As Group has it. Before the first use it tells only for which ranks this one waits; empty where it does not.
  std::string trace(std::size_t calls, const std::string& program = "") const;
  void writeTrace(std::size_t calls, const std::string& program) const;
  Completion& completion() { return runtime_->completion(); }
  CopyWaiters& copyWaiters() { return runtime_->copyWaiters(); }
  std::weak_ptr<Runtime> runtime() const { return runtime_; }

 private:
  Membership(StorePtr store, MembershipOptions options, OnFailed onFailed, Roster roster);
  BootstrapSteps bootstrapSteps();
  void listen(const std::string& name, const Secret& secret);
  bool wasRefused(int rank) const;  // by TLS, on either side
  const std::vector<RankFacts>& meet(const Rendezvous::Patience& patience);
  const std::vector<RankFacts>& meetWithin(std::chrono::milliseconds timeout);
  std::shared_ptr<Group> makeGroup(const std::vector<RankFacts>& facts);
  std::size_t ranksOfMachine(const std::vector<RankFacts>& facts) const;
  void stopListening();
  bool usesRdma(const std::vector<RankFacts>& facts) const;
  void tellTransport(const std::vector<RankFacts>& facts) const;
  void warn(const std::string& text);
  void announce(const Error& error);
  TraceFacts factsOfWait() const;
  void refuseIfAborted() const;

  const StorePtr store_;  // null if there is a roster
  const MembershipOptions options_;
  const std::shared_ptr<Runtime> runtime_;
  const std::vector<RankFacts> rosterFacts_;
  const std::shared_ptr<MembersStore> membersStore_;  // where there is a roster
  std::stop_source failure_;
  std::optional<std::stop_callback<std::function<void()>>> failsToo_;  // where this one is another's trial
  FailureNotice notice_;
  DeviceRendezvous devices_;
  // Of what RDMA will lock. It is made before the ranks meet, and given back when the channels have locked that.
  const std::shared_ptr<LockableMemory::Promise> memory_ = std::make_shared<LockableMemory::Promise>();
  std::shared_ptr<GroupEndpoint> endpoint_;  // changes until the ranks have met, under the rendezvous' lock
  std::unique_ptr<Rendezvous> rendezvous_;   // null if there is no store

  std::mutex making_;  // held while the group is made; never taken by abort()

  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<Group> group_;
  Error aborted_;
  std::string deviceWay_;
};

}  // namespace fairring
