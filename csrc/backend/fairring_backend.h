// The process group backend "fairring": all collectives and messages, of CPU tensors and, through the host, of devices
// that no stock backend serves. Those that reduce are in reducing.cc and reducing_sparse.cc, others in blocks.cc,
// rooted.cc, all_to_all.cc, messages.cc and monitored_barrier.cc. If that is switched on, all-reduces, reduce-scatters
// and all-gathers of CUDA tensors are here too (reducing_on_device.cc, blocks_on_device.cc). Everything else on CUDA
// tensors is stock NCCL's, if the group has one (fallback.h).
//
// Called by torch on the user's threads, mostly without the GIL. Only the first use of a group, shutdown() and the
// destructor wait for the network. Calls of one group are numbered in the order in which they are made.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "backend/fallback.h"
#include "backend/membership.h"
#include "backend/reconfigurer.h"
#include "backend/reduction.h"
#include "backend/work.h"
#include "engine/all_to_all_call.h"
#include "group/lineage.h"

namespace fairring {

class FairringBackend : public Fallback {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  // Makes stock NCCL for the group of these options; the rest as StockNccl::Make has it.
  using MakeNccl = std::function<c10::intrusive_ptr<c10d::Backend>(
      const MembershipOptions& options, std::chrono::milliseconds timeout, std::int64_t generation, StorePtr store,
      bool isOlder, int device)>;
  struct Origin {  // inherited by groups that are split from this one
    MembershipOptions options;
    std::shared_ptr<const MakeNccl> makeNccl;  // null: no stock backend; and once ended, as in StockNccl
  };

  // Makes the backend and remembers it for endAll(). Does not wait for other ranks.
  static c10::intrusive_ptr<c10d::Backend> make(const StorePtr& groupStore, Origin origin,
                                                std::chrono::milliseconds timeout);
  // Ends all groups of the process that have not been destroyed, the newest first: at interpreter exit. A forked child
  // has no groups: those of its parent stay as they are there, for ever, and shutdown() and abort() do nothing. failed:
  // by an uncaught exception. Calls on a device are then broken off at once, and otherwise after 30 s: they may wait
  // for something that never comes, and their timeouts are long.
  static void endAll(bool failed);
  // Makes the traced groups write their records of that many last calls. Throws what Group::writeTrace()
  // throws.
  static void writeTraces(std::size_t calls, const std::string& program);
  // An all-reduce, by SUM or AVG, of a tensor of floats on any device, which crosses between sites in the format of
  // this name (exchange/site_format.h). The rounding errors are kept in the residual: contiguous, of Float32 on the
  // CPU, with as many elements.
  static WorkPtr allReduceBetweenSites(const c10::intrusive_ptr<c10d::Backend>& backend, const std::string& format,
                                       const at::Tensor& tensor, const at::Tensor& residual, const c10d::ReduceOp& how);

  // alone: where a group of one rank has its NCCL; it has no membership.
  FairringBackend(std::shared_ptr<Membership> membership, std::optional<StockNccl::Met> alone, Origin origin,
                  std::chrono::milliseconds timeout, Parts parts);
  ~FairringBackend() override;

  const std::string getBackendName() const override { return "fairring"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;

  // A new group of some of this one's ranks, with its settings, on the store that torch gives it; null if this rank is
  // none of them. Waits for no other rank. torch asks once per device type, and one backend serves all types.
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const StorePtr& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override;

  // PyTorch 2.15 renamed some collectives, and lets old and new names forward to each other. Only the old ones are
  // overridden, so that one source serves all versions.
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
#ifdef C10D_BACKEND_HAS_HOOKS  // 2.14: new, with no older name
  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
#endif
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, Sizes& outputSizes, Sizes& inputSizes,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;

  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool waitAllRanks) override;

  // A new group of this one's ranks except these, which need not live: without the store, even if this group has
  // failed. Waits until all of its members have come; throws if one does not come in time, or dies. With SHRINK_ABORT
  // the calls under way here end first, with an error. All others must make each attempt to exclude the same ranks.
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& excluded, int flags,
                                           const c10::intrusive_ptr<Options>& options) override;

#ifdef FAIRRING_TORCH_2_15  // reconfiguring.cc
  // A group that was made to be reconfigured has no members before its first reconfiguration, nor after abort(): calls
  // are refused, without an error. Each reconfiguration makes a new group of the members whose handles it is given,
  // without the store. The old one is left in the background, as by destroy_process_group; its calls under way end with
  // an error. No other thread may make calls meanwhile. The Work ends once all members have reconfigured.
  bool supportsReconfigure() const override { return reconfigurer_ != nullptr; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif

  c10d::ErrorType getError() override;
  Error firstError() const override;  // the error behind getError()
  void abort() override;
  void shutdown() override;

  // This rank's position: how many groups it has left (0: none), and how many collective calls it has made in this
  // one.
  std::pair<std::uint64_t, std::uint64_t> mark() const;
  // The last complete call on which the ranks agreed when they met, in a group that was shrunk or reconfigured.
  std::optional<Lineage::LastComplete> lastComplete() const { return lineage_->lastComplete(); }

  // For inspection.h. Null once ended, without members, in a group of one rank, and in a forked child, where the mutex
  // may be held by a thread that is not there.
  std::shared_ptr<Membership> inspected() const { return isForked() ? nullptr : membership(); }

 protected:
  StockNccl::Met meet() override;

 private:
  struct HostCall : Call {  // on tensors of the host, or on copies there (host_calls.cc)
    const Operation& operation;
    Common common;
    bool waited;                       // the caller waits for it at once
    TensorLists outputs = {};          // as the future has them
    std::vector<CellPair> cells = {};  // of an all-to-all
    CallMemory memory = {};
    std::span<const at::Tensor> read = {};  // the caller's, for the profiler
  };
  WorkPtr reduceInPlace(const Operation& operation, const Tensors& tensors, const c10d::AllreduceOptions& options);
  // Without the operands' memory.
  HostCall reducingCall(const Operation& operation, const Tensors& tensors, const c10d::ReduceOp& reduction,
                        std::chrono::milliseconds timeout, bool waited) const;
  // inputs[i]: reduced into output i, whole, or in a part for each rank.
  WorkPtr reduceScattered(const Operation& operation, const Tensors& outputs, const TensorLists& inputs,
                          const c10d::ReduceScatterOptions& options);
  // Each input, and each rank's like it, in rows of the output of its number.
  void standInRows(HostCall& call, const Tensors& outputs, const Tensors& inputs) const;
  WorkPtr gatherStacked(const Operation& operation, const Tensors& outputs, const Tensors& inputs,
                        const c10d::AllgatherOptions& options);
  // rows[r]: the place of the data from rank r, a tensor for each input.
  WorkPtr gatherRows(const Operation& operation, const TensorLists& rows, const Tensors& inputs, HostCall call);
  HostCall gatherCall(const Operation& operation, const Tensors& common, TensorLists outputs,
                      const c10d::AllgatherOptions& options) const;
  // common: the one tensor of this rank that is alike on all ranks.
  HostCall rootedCall(const Operation& operation, Pattern pattern, std::int64_t root, const Tensors& common,
                      std::chrono::milliseconds timeout, bool async) const;
  Contribution contributionTo(const Operation& operation, const c10d::ReduceOp& op, const at::Tensor& tensor) const;
  HostCall exchangeCall(const Operation& operation, const Tensors& inputs, const Tensors& outputs,
                        const c10d::AllToAllOptions& options) const;
  WorkPtr runExchange(HostCall call);
  void readFrom(HostCall& call, std::size_t index, const at::Tensor& input) const;
  void orRefused(HostCall& call, std::size_t index, const std::function<void()>& takeMemory) const;
  WorkPtr runOnHost(HostCall call);
  static void moveAlone(const HostCall& call);
  struct MessageCall {  // messages.cc
    const Operation& operation;
    int peer;  // -1: any rank
    int tag;
    at::Tensor tensor;
    CallMemory memory;
  };
  WorkPtr runMessage(MessageCall call);
  // Null if NCCL carries out all of it, or the tensors are not on a device.
  WorkPtr reduceOnDevice(const Operation& operation, const Tensors& tensors, const c10d::AllreduceOptions& options);
  WorkPtr reduceScatterOnDevice(const Operation& operation, const Tensors& outputs, const Tensors& inputs,
                                const c10d::ReduceScatterOptions& options);
  WorkPtr allGatherOnDevice(const Operation& operation, const Tensors& outputs, const Tensors& inputs,
                            const c10d::AllgatherOptions& options);
  struct DeviceCall {
    const Operation& operation;
    Common common;
    Tensors inputs;  // on devices; at least one
    Tensors outputs;
    std::chrono::milliseconds timeout;
    Pattern pattern = Pattern::AllReduce;
  };
  // make: makes the engine's call, except for the fields of DeviceCall, once it is known that the group's calls are not
  // NCCL's; none if this call is NCCL's.
  WorkPtr runOnDevice(const DeviceCall& call, const std::function<std::optional<Call>()>& make);
  std::optional<std::vector<Contribution>> contributionsOnDevice(const Operation& operation, const c10d::ReduceOp& op,
                                                                 const Tensors& tensors) const;
  struct DeviceWay {                              // which backend carries out such calls, alike on all ranks
    std::string whyNccls;                         // why all of them are NCCL's; empty: they are not
    std::uint64_t leastBytes = 0;                 // the smallest call that is not NCCL's; known at once
    bool isDecided = false;                       // all ranks have told of their devices, or need not
    std::vector<std::uint64_t> leastByKind = {};  // likewise, by kTrialPatterns; empty: there was no trial
    bool isOnTrial = false;                       // decided by the trial, which has yet to be made (device_trial.h)
    bool isEquipped = false;                      // the group has made what they need
    std::string figures = {};                     // of the trial

    bool takes(Pattern pattern, std::uint64_t bytes) const;
  };
  // For a call of that size: smaller ones than are Fairring's decide nothing, and wait for no rank.
  DeviceWay deviceWay(Membership& membership, std::uint64_t bytes, std::chrono::milliseconds timeout);
  static DeviceWay wayByFacts(Membership& membership, std::chrono::milliseconds timeout);
  DeviceWay decide(DeviceWay way, Membership& membership, std::chrono::milliseconds timeout) const;
  static std::string fasterByNccl(const Membership& membership, const std::vector<RankFacts>& facts);
  static std::string layoutOf(const std::vector<RankFacts>& facts, std::uint64_t leastBytes);
  void settle(const DeviceWay& way, Membership& membership, std::chrono::milliseconds timeout);
  // Makes the trial, at the same call of all ranks; returns its decision. Calls of other threads wait for it.
  DeviceWay tried(DeviceWay way, Membership& membership, const c10::Device& device, std::chrono::milliseconds timeout);
  // Has the group make what its calls need, likewise; if a rank has no memory for it, they are NCCL's.
  DeviceWay equipped(DeviceWay way, Membership& membership, const c10::Device& device,
                     std::chrono::milliseconds timeout);
  bool mixesCalls() const;
  bool isOnFirstDevice(const at::Device& device) const;
  c10::Stream beginning(const MemoryInFlight::Ranges& touched, const c10::Stream& callers, const c10::Stream& end);
  c10::Stream deviceEnd(const at::Device& device);
  WorkPtr allReduceSparse(const at::Tensor& tensor, const c10d::AllreduceOptions& options);
  using WorkRef = c10::intrusive_ptr<FairringWork>;
  WorkPtr submit(Membership& membership, const WorkRef& work, Call call, bool waited);
  static std::vector<c10::intrusive_ptr<FairringBackend>> liveBackends();
  static std::vector<std::shared_ptr<Membership>> liveMemberships();
  static bool areCallsOnDevicesOver();             // those that any group of this process remembers
  std::shared_ptr<Membership> membership() const;  // null once ended, without members, and in a group of one rank
  std::shared_ptr<Group> groupIfMade() const;      // null likewise, and before the first use
  static void remember(const c10::intrusive_ptr<FairringBackend>& backend);  // for endAll()
  void loseMembers();                                                        // until the next reconfiguration
  bool hasCallOnDevice() const;                                              // of Fairring's
  // This rank's part in the group, for the next one to learn. Waits that long for calls under way, and ends them.
  void leaveGroup(std::chrono::milliseconds forThoseUnderWay);
  // As Group::settle(); none before the first use.
  static std::uint64_t settled(const Membership& membership, std::chrono::milliseconds forThoseUnderWay);
  void beginAs(const GroupId& id);  // a group whose members have changed
  // This rank's part in a group of those ranks of this one, which have yet to meet; it has left this one.
  c10::intrusive_ptr<FairringBackend> shrunkTo(const std::vector<int>& ranks, std::chrono::milliseconds limit,
                                               std::chrono::milliseconds forThoseUnderWay);
  // A membership of those in the roster; null where this rank is alone. limit: of the call that meets them. parts: what
  // its failure breaks off.
  std::shared_ptr<Membership> membersOf(Roster roster, MembershipOptions options, std::chrono::milliseconds limit,
                                        const Parts& parts) const;
  static std::optional<StockNccl::Met> aloneIf(const std::shared_ptr<Membership>& membership);
  static std::shared_ptr<StockNccl> stockOf(const Origin& origin, std::chrono::milliseconds timeout);
#ifdef FAIRRING_TORCH_2_15
  Origin originFor(int rank, int size, std::int64_t uuid);
#endif
  WorkPtr meetMembers(std::chrono::milliseconds limit);  // ends on no rank before all have come

  const std::unique_ptr<Reconfigurer> reconfigurer_;  // null where the group keeps its members
  std::shared_ptr<Lineage> lineage_ = std::make_shared<Lineage>();
  std::atomic<std::uint64_t> groupsBefore_ = 0;
  std::atomic<std::uint32_t> monitoredBarriers_ = 0;

  std::mutex trying_;         // held during the trial, and by nothing that abort() needs
  std::mutex deciding_;       // likewise, until it is known who has the calls on devices; taken after trying_
  mutable std::mutex mutex_;  // guards all below; never held while anything waits
  std::shared_ptr<Membership> membership_;
  std::optional<StockNccl::Met> alone_;  // none once ended
  Origin origin_;
  std::optional<DeviceWay> deviceWay_;
  std::optional<c10::Stream> deviceEnd_;
  std::optional<std::pair<std::string, c10::weak_intrusive_ptr<c10d::Backend>>> lastSplit_;  // the name it has
  std::optional<GroupId> groupId_;  // set if its members have changed
};

}  // namespace fairring
