#include "group/member.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "base/fields.h"
#include "plan/cost_rows.h"
#include "transport/rdma_ports.h"

namespace fairring {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kProbeListeners{1'000};
// A peer has so long to say in what its calls differ from ours. It is less than a channel's end waits for the last
// word: this ends channels too.
constexpr milliseconds kExplanation{1'000};
// A lane on which the other machine acknowledges nothing for so long is broken and made anew, within the heartbeats'
// patience: half of it leaves time for that.
constexpr milliseconds kLaneSilence{2'000};
// 19 MB at most, and the texts of the calls.
constexpr std::size_t kSlicesWhenTraced = std::size_t{1} << 18;
constexpr std::size_t kCallsWhenTraced = std::size_t{1} << 16;
// How long a caller that waits spins before it sleeps: a few times what an exchange takes.
constexpr std::chrono::microseconds kSpinTime{50};

// Peers are told so many ranks of an error, each with at most eleven digits and four characters around it.
constexpr std::size_t kMostErrorRanks = 64;
constexpr std::size_t kMaxErrorText = Control::kMaxText - 64 - (15 * kMostErrorRanks);

// The error with which a rank has failed, as its peers are told it.
struct Failed {
  ErrorKind kind = ErrorKind::System;
  std::string text;
  std::vector<int> ranks;

  static void fields(auto& row, auto& failed) {
    row(failed.kind, failed.text, failed.ranks);
    row.require(failed.kind <= ErrorKind::System);
  }
};

std::vector<CostRow> rowsOf(const GroupSettings& settings) {
  return settings.tuning.rows.empty() ? builtInRows(settings.transports.rail.name, settings.transports.site.name)
                                      : settings.tuning.rows;
}

std::optional<Planner> devicePlannerOf(const GroupSettings& settings, const std::vector<RankFacts>& facts) {
  if (!settings.makeAccelerator) return std::nullopt;
  Topology topology(devicePlacesOf(facts), settings.tuning.grouping);
  // NCCL has one call for equal shards, which is quicker than one for each owner.
  const std::uint64_t grainBytes = equalShardsGrainBytes(topology);
  return Planner(std::move(topology), {settings.tuning.totalMemoryBytes, settings.tuning.sliceBytes,
                                       rowsOnDevice(rowsOf(settings)), grainBytes, false});
}

// Neighbours are one way apart, ranks of a machine and the same rail two; each level of groups is another way.
std::uint32_t passesOn(const Planner& planner) {
  return planner.topology().onlyInGroups() ? static_cast<std::uint32_t>(planner.levels().size() - 2) : 0;
}

std::set<int> railsOf(int rank, const Planner& planner, const std::optional<Planner>& devicePlanner) {
  std::set<int> peers = planner.peersOf(rank);
  if (devicePlanner) peers.merge(devicePlanner->peersOf(rank));
  return peers;
}

}  // namespace

Member::Member(Threads threads, std::shared_ptr<GroupEndpoint> endpoint, GroupSettings settings,
               std::vector<RankFacts> facts)
    : loop_(threads.slices.loop()),
      vitals_(threads.vitals),
      endpoint_(std::move(endpoint)),
      settings_(std::move(settings)),
      rank_(settings_.rank),
      planner_(Topology(placesOf(facts), settings_.tuning.grouping),
               {settings_.tuning.totalMemoryBytes, settings_.tuning.sliceBytes, rowsOf(settings_)}),
      devicePlanner_(devicePlannerOf(settings_, facts)),
      neighbours_(planner_.topology(), railsOf(rank_, planner_, devicePlanner_), std::move(facts), rank_),
      diagnostics_(neighbours_, rank_, settings_.name),
      calls_(
          loop_, [this](const TimedCall& call) { onDeadline(call); }, isTraced() ? kCallsWhenTraced : CallTable::kKept),
      peerProgress_(rank_, calls_, loop_, passesOn(planner_)),
      recorder_(loop_, isTraced() ? kSlicesWhenTraced : Recorder::kKept),
      inquiry_(loop_, waysToAsk()),
      failureDetector_(loop_, neighbours_, diagnostics_, rank_, waysToAct()) {}

// An exchange that is in trouble is in a call, and others may be: none of them is stopped before that is over. While a
// peer explains in what its calls differ, nothing counts that an exchange finds, because it may follow from that.
template <class Act>
auto Member::afterwards(Act act) {
  return [this, act](const auto& what) {
    loop_.post([weak = weak_from_this(), act, what] {
      if (const auto member = weak.lock(); member && member->life_ == Life::Live) act(what);
    });
  };
}

void Member::open() {
  assert(loop_.isCurrent());
  guarded([this] { makeParts(); });
  if (!hasFailed()) return;
  dropParts();
  endpoint_->close();
}

void Member::makeParts() {
  using Kind = FailureDetector::Sign::Kind;
  control_ = std::make_unique<Control>(loop_, vitals_, *this, Heartbeat{settings_.tuning.heartbeatTimeout, [this] {
                                                                          return toText(peerProgress_.beat());
                                                                        }});
  loop_.onUncaught(this, [this](const Error& error) { fail(diagnostics_.own(error)); });
  loop_.setSpinTime(kSpinTime);
  connector_ = std::make_unique<Connector>(
      loop_, endpoint_,
      Connector::Events{[this](AuthenticatedConnection connection) { onLinked(std::move(connection)); },
                        [this](int peer, const Error& error) { failureDetector_.on({Kind::Unlinked, peer, error}); }});
  probe_ = std::make_unique<ListenerProbe>(
      loop_, ListenerProbe::Pace{kProbeListeners, settings_.tuning.connectTimeout},
      ListenerProbe::Events{
          [this](int peer) { failureDetector_.on({Kind::Refused, peer}); },
          [this](int peer, const Error& error) { failureDetector_.on({Kind::Unlinked, peer, error}); },
          [this](int peer, milliseconds silence) { failureDetector_.on({Kind::Stopped, peer, {}, silence}); }});
  messages_ = std::make_unique<Messages>(
      loop_, neighbours_, rank_,
      Messages::Ways{*connector_, *control_, *probe_, settings_.tuning.connectTimeout,
                     settings_.tuning.heartbeatTimeout},
      Messages::Events{
          [this](int peer, const Error& error) { failureDetector_.on({Kind::MessagesEnded, peer, error}); },
          afterwards([this](const Error& error) { fail(error); }), [this] { acknowledgeLeaves(); }});
  connector_->open();
}

// At the first call of all ranks.
void Member::link(milliseconds callTimeout) {
  if (!connector_ || linking_ != Linking::None) return;
  linking_ = Linking::UnderWay;
  guarded([&] { prepare(callTimeout); });
  if (!locksLater()) noteMemoryLocked();
  // After a failure too: the neighbours learn of it by the connections that they make.
  guarded([this] { linkNeighbours(); });
  failureDetector_.linked();
  guarded([this] {
    for (const int peer : std::set<int>(control_->peers())) introduce(peer);
    for (auto& [peer, message] : std::exchange(early_, {})) onControl(peer, std::move(message));
    openIfComplete();
  });
}

void Member::prepare(milliseconds callTimeout) {
  const Troubles troubles{
      .failed = afterwards([this](const Error& error) { fail(error); }),
      .differs = afterwards([this](int peer) { onDiffers(peer); }),
      .left = afterwards([this](int peer) { failureDetector_.on({FailureDetector::Sign::Kind::Needed, peer}); })};
  const std::uint64_t bulk = settings_.tuning.totalMemoryBytes;
  const std::uint64_t all = Pipeline::allStagingBytes(bulk);
  machine_ = std::make_unique<SharedMemory>(loop_, neighbours_.local(), rank_, all, troubles);
  machine_->recordIn(recorder_);
  const std::vector<int>& local = neighbours_.local();
  const auto index = static_cast<std::uint32_t>(std::ranges::lower_bound(local, rank_) - local.begin());
  const int place =
      PlaceOnMachine::ofThisProcess().in(static_cast<std::uint32_t>(local.size()), index, settings_.globalRank);
  if (!neighbours_.rails().empty()) {
    rails_ = std::make_unique<Rails>(loop_, rank_, troubles);
    rails_->recordIn(recorder_);
    rails_->onChannelEnded = [this](int peer, const Error& error) {
      failureDetector_.on({FailureDetector::Sign::Kind::ChannelEnded, peer, error});
    };
    makeChannels({machine_->flags().staging(), all}, place, callTimeout);
  }
  std::byte* const staging = machine_->flags().staging();
  const bool tensorsMayBeImages = neighbours_.local().size() == 1 && settings_.transports.rail.tensorsMayBeImages &&
                                  settings_.transports.site.tensorsMayBeImages;
  Pipeline::Levels levels{machine_.get(), rails_.get(), SharedMemory::kMostSlices, staging,
                          bulk,           all - bulk,   tensorsMayBeImages,        &recorder_};
  pipeline_ = std::make_unique<Pipeline>(planner_, rank_, levels);
  acknowledgeLeaves();  // of peers that have left already
}

void Member::makeChannels(std::span<std::byte> staging, int place, milliseconds callTimeout) {
  ChannelSettings channels{.rank = rank_,
                           .peers = {},
                           .bindAddress = "",
                           .placeOnMachine = place,
                           .rdmaFabric = neighbours_.facts(rank_).rdmaFabric,
                           .staging = staging,
                           .secret = endpoint_->secret,
                           .relinking = {[this](int peer, std::uint32_t lane) {
                                           connector_->restore(peer, Purpose::Lane, lane,
                                                               settings_.tuning.heartbeatTimeout);
                                         },
                                         settings_.tuning.heartbeatTimeout},
                           .opened = [this] { openIfComplete(); },
                           .notOpened = nullptr};
  opening_ =
      std::make_unique<ChannelOpening>(ChannelOpening::Parts{loop_, *rails_, neighbours_, *connector_, *control_},
                                       ChannelOpening::Settings{settings_.transports, settings_.tuning.connectTimeout,
                                                                callTimeout, std::move(channels), settings_.warn});
}

bool Member::locksLater() const { return settings_.transports.rail.locksLater || settings_.transports.site.locksLater; }

void Member::noteMemoryLocked() {
  if (settings_.memoryLocked && !std::exchange(hasNotedMemory_, true)) settings_.memoryLocked();
}

void Member::linkNeighbours() {
  probeListeners();
  connector_->want(neighbours_.wanted(settings_.transports), settings_.tuning.connectTimeout);
}

// Until a peer's control connection is there, which tells more.
void Member::probeListeners() {
  for (const int peer : neighbours_.above()) {
    if (!control_->peers().contains(peer)) probe_->watch(peer, neighbours_.listenAddressOf(peer));
  }
}

void Member::onLinked(AuthenticatedConnection connection) {
  if (connection.purpose == Purpose::Control) probe_->forget(connection.peer);
  if (hasFailed()) {
    if (connection.purpose != Purpose::Control) return;
    control_->add(connection.peer, std::move(connection.stream));
    return tellFailure({connection.peer});
  }
  switch (connection.purpose) {
    case Purpose::Lane: guarded([&] { addLane(std::move(connection)); }); break;
    case Purpose::MessageLane: guarded([&] { messages_->add(std::move(connection)); }); break;
    case Purpose::Control:
      control_->add(connection.peer, std::move(connection.stream));
      peerProgress_.met(connection.peer);
      if (linking_ != Linking::None) introduce(connection.peer);
      // A peer whose first message comes now must not take the end of its connection for a death.
      if (leaveProtocol_.hasSaid()) sayLeave(connection.peer);
  }
  openIfComplete();
  leaveIfAsked();
}

FailureDetector::Ways Member::waysToAct() {
  return {.standingOf = [this](int peer) { return standingOf(peer); },
          .connectAgain =
              [this](int peer) { connector_->repeat(neighbours_.controlTo(peer), settings_.tuning.connectTimeout); },
          .probeListener = [this](int peer) { probe_->watch(peer, neighbours_.listenAddressOf(peer)); },
          .hasLeft = [this](auto ended, int peer) { hasLeft(ended, peer); },
          .loseMessages = [this](int peer, const Error& error) { loseMessages(peer, error); },
          .fail = [this](const Error& error) { fail(error); },
          .lookForFailure = settings_.lookForFailure};
}

FailureDetector::Standing Member::standingOf(int peer) const {
  const Channel* const channel = channelTo(peer);
  return {.isNeighbour = isNeighbour(peer),
          .isAwaited = messages_->waitsFor(peer),
          .isConnected = control_->peers().contains(peer),
          .hasLeft = leaveProtocol_.hasGone(peer),
          .isAnswered = leaveProtocol_.isAnswered(peer),
          .bytesSeen = (channel == nullptr ? 0 : channel->bytesSeen()) + messages_->bytesSeen(peer)};
}

void Member::hasLeft(FailureDetector::Sign::Kind ended, int peer) {
  if (ended == FailureDetector::Sign::Kind::ChannelEnded) return rails_->leave(peer);
  if (ended == FailureDetector::Sign::Kind::MessagesEnded) return loseMessages(peer, left(peer));
  // Its flags in shared memory are all that it will ever set; what its channel still holds, the channel's end will
  // tell.
  if (Channel* const channel = channelTo(peer)) channel->peerLeaves();
  messages_->peerLeaves(peer);
  if (machine_) machine_->leave(peer);
}

void Member::addLane(AuthenticatedConnection lane) {
  prepareForPayload(lane.stream.socket(), std::min(kLaneSilence, settings_.tuning.heartbeatTimeout / 2));
  shareEvenly(lane.stream.socket());
  if (Channel* const channel = channelTo(lane.peer)) channel->add(lane.lane, std::move(lane.stream));
}

Channel* Member::channelTo(int peer) const { return rails_ ? rails_->channelTo(peer) : nullptr; }

void Member::introduce(int peer) {
  if (hasFailed()) return;
  if (neighbours_.isLocal(peer)) {
    control_->send(peer, ControlType::Segment, "", machine_->flags().descriptors());
  } else if (opening_) {
    opening_->introduce(peer);
  }
}

void Member::openIfComplete() {
  if (linking_ != Linking::UnderWay || life_ != Life::Live || !connector_->missing().empty() ||
      !machine_->flags().unattached().empty())
    return;
  if (opening_ && !opening_->isComplete()) return;
  linking_ = Linking::Complete;
  noteMemoryLocked();
  pipeline_->open();
  leaveIfAsked();
}

void Member::submit(Call call, const CallRecord& entered) {
  assert(loop_.isCurrent());
  attempt(call, entered.number, [&] {
    if (call.inputs) awaitInputs(*call.inputs);
    pipeline_->submit(std::move(call), entered.hash);
  });
}

void Member::awaitInputs(Arrival& inputs) {
  inputs.whenOver([weak = weak_from_this(), &loop = loop_](const Error& error) {
    loop.post([weak, error] {
      const auto member = weak.lock();
      if (!member || !member->pipeline_) return;
      error ? member->fail(member->diagnostics_.own(error)) : member->pipeline_->resume();
    });
  });
}

void Member::begin(Call& call, std::uint64_t number) {
  call.number = number;
  calls_.begin(number, std::exchange(call.done, [this, number](const Error& error) { ended(number, error); }),
               call.timeout);
}

void Member::ended(std::uint64_t number, const Error& error) {
  const std::optional<CallTable::UnderWay> call = calls_.underWay(number);
  const Error told = call ? verdict(*call, error) : error;  // first: where memory runs out, the call is still under way
  const CallTable::Done done = calls_.end(number, error);
  if (!done) return;
  done(told);
  if (!idle_.empty() && calls_.isIdle()) {
    for (const auto& idle : std::exchange(idle_, {})) idle();
  }
}

Error Member::verdict(const CallTable::UnderWay& call, const Error& error) const {
  if (CallTable::isGood(error)) return call.isSettled ? diagnostics_.settled(call.call) : error;
  return hasFailed() ? Diagnostics::underWay(error, call.call, call.isTouched) : error;
}

void Member::whenIdle(std::function<void()> idle) {
  assert(loop_.isCurrent());
  if (calls_.isIdle()) return idle();
  idle_.push_back(std::move(idle));
}

std::set<int> Member::missing() const {
  if (linking_ == Linking::None) return {};
  if (linking_ == Linking::UnderWay) {
    std::set<int> peers = connector_->missing();
    peers.merge(std::set<int>(machine_->flags().unattached()));
    return peers.empty() ? neighbours_.rails() : peers;  // whose channels are not open yet
  }
  std::set<int> peers = machine_->missing();
  if (rails_) peers.merge(rails_->missing());
  return peers;
}

void Member::become(Life next) {
  assert(next > life_);
  life_ = next;
}

// Where memory runs out in the midst of it, what is left is ended at the second attempt.
void Member::fail(const Error& error) {
  assert(loop_.isCurrent());
  if (life_ >= Life::Failed) return;
  {
    const std::lock_guard lock(mutex_);
    error_ = Error(error);  // whole, or not at all where memory runs out
  }
  become(Life::Failed);
  failureDetector_.close();
  inquiry_.close();
  late_.clear();
  try {
    endEverything();
  } catch (const std::exception&) {
    endEverything();
  }
  leaveProtocol_.giveUp();
}

void Member::endEverything() {
  const auto seen = isTraced() ? std::make_shared<const Seen>(trace(kAllCalls)) : nullptr;
  // Before any caller hears of it: one that ends its process at once would be taken for the culprit.
  if (control_) tellFailure(control_->peers());
  if (machine_) machine_->stop();
  if (rails_) rails_->stop();
  if (device_) device_->stop();
  if (messages_) messages_->fail(error_);
  if (pipeline_) {
    // Once: where memory has run out in the midst of it, parts of calls that have written are no longer there.
    if (!std::exchange(hasToldUntouched_, true)) calls_.untouched(pipeline_->untouched());
    pipeline_->fail(error_);
  }
  if (device_) letDeviceGo();
  if (deviceIsIdle_) std::exchange(deviceIsIdle_, nullptr)();
  if (seen && settings_.offLoop) {
    settings_.offLoop(
        [seen, directory = settings_.tuning.traceDirectory] { writeTraceOrSay(directory, seen->first, seen->second); });
  }
  if (settings_.failed) settings_.failed(error_);
}

void Member::tellFailure(const std::set<int>& peers) {
  std::vector<int> ranks = error_.ranks();
  ranks.resize(std::min(ranks.size(), kMostErrorRanks));
  const std::string text = toText(Failed{error_.kind(), error_.text().substr(0, kMaxErrorText), std::move(ranks)});
  for (const int peer : peers) control_->send(peer, ControlType::Failed, text);
}

TrafficByLevel Member::traffic() const {
  TrafficByLevel moved = rails_ ? rails_->traffic() : TrafficByLevel();
  if (machine_) moved[0] = machine_->traffic();
  if (!rails_) return moved;
  for (const auto& [peer, channel] : rails_->channels()) {
    moved[planner_.topology().inOneSite(rank_, peer) ? 1 : Topology::kSiteLevel].sends += channel->sends();
  }
  if (moved.contains(Topology::kSiteLevel)) moved[Topology::kSiteLevel].rounding = pipeline_->rounding();
  return moved;
}

Member::Seen Member::trace(std::size_t calls) const {
  TraceFacts facts;
  facts.group = settings_.name;
  facts.rank = rank_;
  facts.stagingBytes = settings_.tuning.totalMemoryBytes;
  facts.now = recorder_.time();
  facts.unixNow = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  for (int rank = 0; rank < planner_.topology().world(); ++rank) {
    facts.machines.push_back(neighbours_.facts(rank).place.machine);
    facts.hosts.push_back(neighbours_.facts(rank).hostname);
    facts.sites.push_back(neighbours_.facts(rank).place.site);
  }
  for (const int peer : neighbours_.rails()) {
    if (const Channel* const channel = channelTo(peer)) facts.packets[peer] = channel->packets();
  }
  facts.traffic = traffic();
  facts.clockLeads = peerProgress_.clockLeads();
  const ProcessorTime processor = ProcessorTime::now();
  facts.processor = {processor.ran - std::min(processor.ran, atFirst_.ran),
                     processor.waited - std::min(processor.waited, atFirst_.waited)};
  if (hasFailed()) facts.error = error_.text();
  facts.deviceWay = deviceWay_;
  facts.sightings = peerProgress_.sightings();
  if (oldestCall() != nullptr) facts.missing = missing();
  if (messages_) facts.messages = messages_->waits();
  TraceRecords records{calls_.records(calls), {}};
  records.slices = recorder_.slices(records.calls.empty() ? 0 : records.calls.front().begun);
  if (machine_) std::ranges::copy(machine_->underWay(), std::back_inserter(records.slices));
  if (rails_) std::ranges::copy(rails_->underWay(), std::back_inserter(records.slices));
  return {std::move(facts), std::move(records)};
}

Error Member::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Member::onControl(int peer, ControlMessage message) {
  if (failureDetector_.heard(peer)) probe_->forget(peer);
  const bool isOfChannel = message.type == ControlType::Contact || message.type == ControlType::NoChannel ||
                           message.type == ControlType::TakeTcp;
  const bool isIntroduction = message.type == ControlType::Segment || isOfChannel;
  if (isIntroduction && linking_ == Linking::None) {
    early_.emplace_back(peer, std::move(message));
    return;
  }
  switch (message.type) {
    case ControlType::Contact:
      if (opening_ && !hasFailed()) guarded([&] { opening_->onContact(peer, message.text); });
      return;
    case ControlType::NoChannel:
      if (opening_ && !hasFailed()) guarded([&] { opening_->onNoChannel(peer, message.text); });
      return;
    case ControlType::TakeTcp:
      if (opening_ && !hasFailed()) guarded([&] { opening_->onTakeTcp(peer, message.text); });
      return;
    case ControlType::Segment:
      if (!hasFailed()) guarded([&] { machine_->flags().attach(peer, std::move(message.descriptors)); });
      return openIfComplete();
    case ControlType::Failed:
      if (const auto failed = read<Failed>(peer, message.text)) fail(Error(failed->kind, failed->text, failed->ranks));
      return;
    case ControlType::Heartbeat:
      if (auto beat = read<PeerProgress::Beat>(peer, message.text);
          beat && !peerProgress_.heard(peer, std::move(*beat)))
        onDiffers(peer);
      return;
    case ControlType::CallLog:
      if (const auto calls = read<std::vector<CallTable::Told>>(peer, message.text))
        fail(diagnostics_.differ(peer, calls_.differenceTo(*calls)));
      return;
    case ControlType::Leave:
      if (const auto completed = read<Completed>(peer, message.text)) onLeave(peer, *completed);
      return;
    case ControlType::LeaveAck: return leaveProtocol_.answered(peer);
    case ControlType::Here: return;
    case ControlType::Question:
      if (!hasFailed()) inquiry_.onQuestion(peer);
      return;
    case ControlType::Account:
      if (auto account = read<Account>(peer, message.text); account && !hasFailed())
        inquiry_.onAccount(peer, std::move(*account));
      return;
  }
}

template <class Value>
std::optional<Value> Member::read(int peer, const std::string& text) {
  std::optional<Value> value = fromText<Value>(text);
  if (!value) fail(diagnostics_.unreadable(peer, text));
  return value;
}

// The peer is told what calls were made here; it answers with the error, which says what they were there.
void Member::onDiffers(int peer) {
  if (life_ != Life::Live) return;
  become(Life::Explaining);
  if (pipeline_) pipeline_->halt();
  control_->send(peer, ControlType::CallLog, toText(calls_.told()));
  loop_.at(loop_.now() + kExplanation, [weak = weak_from_this(), peer] {
    if (const auto member = weak.lock()) member->fail(member->diagnostics_.differ(peer, std::nullopt));
  });
}

void Member::onControlEnded(int peer, const Error& error) {
  const auto verdict = failureDetector_.on({FailureDetector::Sign::Kind::ControlEnded, peer, error});
  // Where it is connected once more, it has not heard us, and our Leave is said once more too (onLinked).
  if (verdict != FailureDetector::Verdict::ConnectAgain) leaveProtocol_.answered(peer);
}

void Member::onTrouble(const Error& error) { fail(diagnostics_.own(error)); }

void Member::onSilent(int peer, milliseconds silence) {
  failureDetector_.on({FailureDetector::Sign::Kind::Silent, peer, {}, silence});
}

}  // namespace fairring
