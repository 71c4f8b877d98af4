// This rank's part in a group: its connections to its neighbours (the ranks of its machine and of its rails), the
// pipeline that works through them, and its messages, which need none of that. The first call of all ranks has the
// neighbours linked, in the background: calls wait until every one is there.
// Constructed by a caller; then on the loop only, but for error(), isLinked(), calls() and devicePlanner(). Kept alive
// by its Group and by its timers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "device/device_exchange.h"
#include "engine/pipeline.h"
#include "exchange/rails.h"
#include "exchange/recorder.h"
#include "exchange/shared_memory.h"
#include "group/call_table.h"
#include "group/channel_opening.h"
#include "group/diagnostics.h"
#include "group/failure_detector.h"
#include "group/inquiry.h"
#include "group/leave_protocol.h"
#include "group/messages.h"
#include "group/neighbours.h"
#include "group/peer_progress.h"
#include "group/settings.h"
#include "group/trace.h"
#include "transport/connector.h"
#include "transport/control.h"
#include "transport/listener_probe.h"

namespace fairring {

class Member final : public ControlReceiver, public std::enable_shared_from_this<Member> {
 public:
  Member(Threads threads, std::shared_ptr<GroupEndpoint> endpoint, GroupSettings settings,
         std::vector<RankFacts> facts);

  void open();
  void submit(Call call, const CallRecord& entered);
  void send(Sending sending);
  void receive(Receiving receiving);
  // A message that somebody waits for has been under way for too long, if it still is.
  void onLate(const TimedCall& call, std::optional<int> peer, const std::function<bool()>& isUnderWay);
  // The ranks are about to meet for their first call on a device: a death ends that.
  void awaitDevice(std::chrono::milliseconds callTimeout) { link(callTimeout); }
  // Called once, for calls on the device's tensors: `device` has their gates. `abortDevice` breaks off what the gates
  // do not reach, and may take a while.
  void guard(std::shared_ptr<DeviceExchange> device, std::function<void()> abortDevice);
  void beginOnDevice(Call call, const CallRecord& entered);
  void whenDeviceIsIdle(std::function<void()> idle);  // or has failed: nothing of it is to come
  void fail(const Error& error);
  void endUnfinished();  // the calls that are under way, with an error
  // `left` is called when no peer needs anything of this rank any more. Calls that are not finished end with an error.
  void leave(std::function<void()> left);
  void close();
  // A call of the table that is made of messages is over.
  void ended(std::uint64_t number, const Error& error);
  void whenIdle(std::function<void()> idle);  // no call is under way
  std::uint64_t settle() { return calls_.settle(); }

  Error error() const;
  bool isLinked() const { return linking_ == Linking::Complete; }
  CallTable& calls() { return calls_; }
  const Planner& devicePlanner() const { return devicePlanner_ ? *devicePlanner_ : planner_; }
  TrafficByLevel traffic() const;
  using Seen = std::pair<TraceFacts, TraceRecords>;
  Seen trace(std::size_t calls) const;  // of so many last ones
  void noteDeviceWay(std::string words) { deviceWay_ = std::move(words); }

  void onControl(int peer, ControlMessage message) override;
  void onControlEnded(int peer, const Error& error) override;
  void onTrouble(const Error& error) override;
  void onSilent(int peer, std::chrono::milliseconds silence) override;

 private:
  // Goes forward only, and may skip states. A rank that leaves, or has yet to be linked, lives like any other.
  enum class Life : std::uint8_t {
    Live,
    Explaining,  // calls differ from those of a peer, which is asked to say in what; nothing more begins
    Failed,      // by the first error
    Closed,
  };
  // With the neighbours, from the first call of all ranks on.
  enum class Linking : std::uint8_t { None, UnderWay, Complete };

  void become(Life next);
  bool hasFailed() const { return life_ == Life::Failed; }
  bool isOver() const { return life_ >= Life::Failed; }
  Error verdictOnMessages() const;  // of a member that is over
  bool isTraced() const { return !settings_.tuning.traceDirectory.empty(); }
  void makeParts();  // what a member has from the beginning
  void dropParts();
  void link(std::chrono::milliseconds callTimeout);
  void prepare(std::chrono::milliseconds callTimeout);
  void linkNeighbours();
  void probeListeners();
  void onLinked(AuthenticatedConnection arrival);
  FailureDetector::Ways waysToAct();
  FailureDetector::Standing standingOf(int peer) const;
  void hasLeft(FailureDetector::Sign::Kind ended, int peer);
  void makeChannels(std::span<std::byte> staging, int place, std::chrono::milliseconds callTimeout);
  void addLane(AuthenticatedConnection lane);
  Channel* channelTo(int peer) const;  // of the rails; null: there is none
  bool locksLater() const;
  void noteMemoryLocked();
  void introduce(int peer);
  void openIfComplete();
  void loseMessages(int peer, const Error& error);
  bool isNeighbour(int peer) const;  // whom calls of all ranks need
  bool canLeave() const;
  void sayLeave(int peer);
  void leaveIfAsked();
  void endEverything();  // that is under way, with the group's error; or what is left of it
  void tellFailure(const std::set<int>& peers);
  void onLeave(int peer, const Completed& completed);
  void acknowledgeLeaves();
  Error left(int peer) const;  // of what needs a peer that has said that it leaves
  void onDiffers(int peer);
  void onDeadline(const TimedCall& call);
  Inquiry::Ways waysToAsk();
  Account account() const;
  void onConcluded(const Inquiry::Findings& findings);
  // Does that in a task of its own, if this is Live by then.
  template <class Act>
  auto afterwards(Act act);
  void addStagingOfDevice();
  void letDeviceGo();  // after an error
  std::set<int> missing() const;
  // The value that a peer has sent as text. One that can't be read ends the group.
  template <class Value>
  std::optional<Value> read(int peer, const std::string& text);
  // Runs what may throw; that ends the group.
  template <class Action>
  void guarded(const Action& action);
  // Begins the call and has it submitted. It ends whatever is thrown meanwhile.
  template <class Action>
  void attempt(Call& call, std::uint64_t number, const Action& submit);
  void awaitInputs(Arrival& inputs);
  void begin(Call& call, std::uint64_t number);
  Error verdict(const CallTable::UnderWay& call, const Error& error) const;
  const Call* oldestCall() const;

  struct Late {  // a call whose time is over
    TimedCall call;
    std::set<int> peers;  // of a message
    std::function<bool()> isUnderWay;
  };

  Loop& loop_;
  LoopThread& vitals_;
  const std::shared_ptr<GroupEndpoint> endpoint_;
  const GroupSettings settings_;
  const int rank_;
  const Planner planner_;
  const std::optional<Planner> devicePlanner_;  // where there may be calls on a device, which has machines of its own
  const Neighbours neighbours_;
  const Diagnostics diagnostics_;
  CallTable calls_;
  PeerProgress peerProgress_;
  Recorder recorder_;
  const ProcessorTime atFirst_ = ProcessorTime::now();

  std::unique_ptr<ListenerProbe> probe_;  // of neighbours that have yet to connect
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<Messages> messages_;
  std::atomic<Linking> linking_ = Linking::None;       // any thread may look
  bool hasNotedMemory_ = false;                        // that it is locked
  std::vector<std::pair<int, ControlMessage>> early_;  // what neighbours have said before it began
  std::unique_ptr<SharedMemory> machine_;
  std::unique_ptr<Rails> rails_;             // where there are any
  std::unique_ptr<ChannelOpening> opening_;  // of their channels
  std::unique_ptr<Pipeline> pipeline_;
  std::shared_ptr<DeviceExchange> device_;  // where there are calls on a device
  std::function<void()> abortDevice_;
  std::function<void()> deviceIsIdle_;  // called when it is
  std::string deviceWay_;               // for the trace

  std::vector<Late> late_;  // until the inquiry has an answer
  Inquiry inquiry_;
  FailureDetector failureDetector_;
  bool hasToldUntouched_ = false;            // which calls had written nothing when the group failed
  std::vector<std::function<void()>> idle_;  // called when it is
  LeaveProtocol leaveProtocol_;

  Life life_ = Life::Live;
  mutable std::mutex mutex_;  // guards error_, which callers read
  Error error_;
};

template <class Action>
void Member::guarded(const Action& action) {
  try {
    action();
  } catch (const Failure& failure) {
    fail(diagnostics_.own(failure.error()));
  } catch (const std::exception& exception) {
    fail(diagnostics_.own(makeError(ErrorKind::System, exception.what())));
  }
}

// Where it throws, the pipeline may have the call, which has ended it then, or not.
template <class Action>
void Member::attempt(Call& call, std::uint64_t number, const Action& submit) {
  link(call.timeout);
  if (hasFailed()) {
    calls_.end(number, error_);
    return call.done(error_);
  }
  guarded([&] {
    begin(call, number);
    submit();
  });
  if (hasFailed()) ended(number, error_);
}

}  // namespace fairring
