#include "engine/member.h"

#include <algorithm>
#include <cassert>

#include "plan/cost_rows.h"

namespace fairring {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kConnectTimeout{60'000};
// A pipe that ends says less than the control connection, which tells death from farewell; it gets this long to do so.
constexpr milliseconds kLastWord{2'000};

std::vector<Place> placesOf(const std::vector<RankFacts>& facts) {
  std::vector<Place> places;
  places.reserve(facts.size());
  for (const RankFacts& one : facts) places.push_back(one.place);
  return places;
}

PlannerSettings plannerSettings(const GroupSettings& settings) {
  return {
      settings.totalMemoryBytes, settings.sliceBytes,
      builtInRows(settings.transport.pipes == Transport::Pipes::TensorPipe ? settings.transport.tensorpipe : "tcp")};
}

std::string seconds(milliseconds time) { return concat(static_cast<double>(time.count()) / 1000.0, " s"); }

}  // namespace

Member::Member(Loop& loop, std::shared_ptr<Entrance> entrance, GroupSettings settings, std::vector<RankFacts> facts)
    : loop_(loop),
      entrance_(std::move(entrance)),
      settings_(std::move(settings)),
      rank_(settings_.rank),
      planner_(Topology(placesOf(facts)), plannerSettings(settings_)),
      neighbours_(planner_.topology(), std::move(facts), rank_) {}

void Member::guarded(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    fail(makeError(failure.error().kind(), "group ", settings_.name, ", ", neighbours_.who(rank_), ": ",
                   failure.what()));
  } catch (const std::exception& exception) {
    fail(makeError(ErrorKind::System, "group ", settings_.name, ", ", neighbours_.who(rank_), ": ", exception.what()));
  }
}

void Member::open() {
  assert(loop_.isCurrent());
  control_ = std::make_unique<Control>(loop_, *this);
  loop_.onUncaught(this, [this](const Error& error) { fail(error); });
  guarded([this] { prepare(); });
  // After a failure too: the neighbours learn of it by the connections that they make.
  guarded([this] { linkNeighbours(); });
  openIfComplete();
}

void Member::prepare() {
  const auto sink = [this](const Error& error) { fail(error); };
  machine_ = std::make_unique<SharedMemory>(loop_, neighbours_.local(), rank_, settings_.totalMemoryBytes, sink);
  if (!neighbours_.rails().empty()) {
    rails_ = std::make_unique<Rails>(loop_, rank_, sink);
    rails_->onPipeEnded = [this](int peer, const Error& error) { onPipeEnded(peer, error); };
    makePipes();
  }
  const Pipeline::Levels levels{machine_.get(), rails_.get(), SharedMemory::kMostSlices, machine_->staging(),
                                settings_.totalMemoryBytes};
  pipeline_ = std::make_unique<Pipeline>(planner_, rank_, levels);
  pipeline_->onProgress = [this] { answerGoodbyes(); };
}

void Member::makePipes() {
  if (settings_.transport.pipes == Transport::Pipes::Tcp) {
    tcp_ = std::make_unique<TcpPipes>(loop_, *rails_);
    rails_->use(*tcp_);
    return;
  }
  const ContactPipesSettings settings{
      .transport = settings_.transport.tensorpipe,
      .bindAddress = neighbours_.facts(rank_).address,
      .rank = rank_,
      .peers = {neighbours_.rails().begin(), neighbours_.rails().end()},
      .secret = entrance_->secret,
  };
  tensorpipe_ = settings_.makeTensorPipe(loop_, settings, *rails_);
  tensorpipe_->whenOpen([this] {
    pipesOpen_ = true;
    openIfComplete();
  });
  rails_->use(*tensorpipe_);
}

void Member::linkNeighbours() {
  links_ = std::make_unique<Links>(
      loop_, entrance_,
      Links::Events{[this](Arrival arrival) { onLinked(std::move(arrival)); },
                    [this](int peer, const Error& error) { fail(neighbours_.unreachable(peer, error)); }});
  links_->want(neighbours_.wanted(settings_.transport), kConnectTimeout);
}

void Member::onLinked(Arrival arrival) {
  if (error_) {
    if (arrival.purpose == Purpose::Lane) return;
    control_->add(arrival.peer, std::move(arrival.socket));
    return tellFailure({arrival.peer});
  }
  if (arrival.purpose == Purpose::Lane) {
    tcp_->add(arrival.peer, std::move(arrival.socket));
  } else {
    control_->add(arrival.peer, std::move(arrival.socket));
    introduce(arrival.peer);
  }
  openIfComplete();
}

void Member::introduce(int peer) {
  if (neighbours_.isLocal(peer)) {
    control_->send(peer, ControlType::Segment, "", machine_->descriptors());
  } else if (tensorpipe_ && rank_ < peer) {
    control_->send(peer, ControlType::Contact, tensorpipe_->contact());
  }
}

void Member::openIfComplete() {
  if (open_ || error_ || !links_ || !links_->missing().empty() || !machine_->unattached().empty()) return;
  if (tensorpipe_ && !pipesOpen_) return;
  open_ = true;
  pipeline_->open();
}

void Member::submit(Call call) {
  assert(loop_.isCurrent());
  if (error_) return call.done(error_);
  const std::uint64_t number = nextCall_++;
  if (call.timeout.count() > 0) {
    const auto expired = [this, number, title = call.title, timeout = call.timeout] {
      deadlines_.erase(number);
      onDeadline(title, timeout);
    };
    deadlines_[number] = loop_.at(Loop::Clock::now() + call.timeout, expired);
  }
  call.done = [this, number, done = std::move(call.done)](const Error& error) {
    const auto deadline = deadlines_.extract(number);
    if (!deadline.empty()) loop_.cancel(deadline.mapped());
    done(error);
  };
  pipeline_->submit(std::move(call));
}

std::set<int> Member::missing() const {
  if (!open_) {
    std::set<int> peers = links_->missing();
    peers.merge(machine_->unattached());
    return peers.empty() ? neighbours_.rails() : peers;  // whose TensorPipe is not there yet
  }
  std::set<int> peers = machine_->missing();
  if (rails_) peers.merge(rails_->missing());
  return peers;
}

void Member::onDeadline(const std::string& title, milliseconds timeout) {
  const std::set<int> peers = missing();
  fail(makeError(ErrorKind::Timeout, neighbours_.who(rank_), ": ", title, " in group ", settings_.name,
                 " did not finish within ", seconds(timeout), "; ",
                 open_ ? "nothing has come from " : "no connection yet with ",
                 peers.empty() ? std::string("anybody in time") : neighbours_.who(peers),
                 ", which is slow or stuck, has not made this call, or waits for another rank in turn. If it is only ",
                 "slow, give init_process_group a longer timeout"));
}

void Member::fail(const Error& error) {
  assert(loop_.isCurrent());
  if (error_) return;
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
  }
  if (machine_) machine_->stop();
  if (rails_) rails_->stop();
  if (tcp_) tcp_->close();
  if (tensorpipe_) tensorpipe_->close();
  if (pipeline_) pipeline_->fail(error);
  tellFailure(control_->peers());
  farewells_.giveUp();
}

void Member::tellFailure(const std::vector<int>& peers) {
  const std::string text = concat(static_cast<int>(error_.kind()), " ", error_.text()).substr(0, Control::kMaxText);
  for (const int peer : peers) control_->send(peer, ControlType::Failed, text);
}

Error Member::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Member::onControl(int peer, ControlMessage message) {
  switch (message.type) {
    case ControlType::Contact:
      if (!error_ && tensorpipe_) guarded([&] { tensorpipe_->connect(peer, message.text); });
      return;
    case ControlType::Segment:
      if (!error_) guarded([&] { machine_->attach(peer, std::move(message.descriptors)); });
      return openIfComplete();
    case ControlType::Failed: {
      const std::size_t space = message.text.find(' ');
      const auto kind = std::strtoul(message.text.c_str(), nullptr, 10);
      if (space == std::string::npos || kind > static_cast<unsigned>(ErrorKind::System)) return;
      return fail(Error(static_cast<ErrorKind>(kind), message.text.substr(space + 1)));
    }
    case ControlType::Goodbye: return onGoodbye(peer, std::strtoull(message.text.c_str(), nullptr, 10));
    case ControlType::Farewell: return farewells_.answered(peer);
  }
}

void Member::onControlEnded(int peer, const Error& error) {
  farewells_.answered(peer);
  if (error_) return;
  // Its marks in shared memory are all that it will ever set; what its pipe still holds, the pipe's end will tell.
  if (farewells_.hasGone(peer)) return machine_->leave(peer);
  fail(makeError(ErrorKind::PeerDied, neighbours_.who(peer), " died: its connection to ", neighbours_.who(rank_),
                 " ended without a goodbye", error ? concat(" (", error.text(), ")") : "",
                 "; look at that rank's own output for the reason"));
}

void Member::onPipeEnded(int peer, const Error& error) {
  if (farewells_.hasGone(peer)) return rails_->leave(peer);
  loop_.at(Loop::Clock::now() + kLastWord, [weak = weak_from_this(), peer, error] {
    const auto member = weak.lock();
    if (!member || member->error_) return;
    if (member->farewells_.hasGone(peer)) return member->rails_->leave(peer);
    member->fail(makeError(ErrorKind::Connection, "the data connection between ",
                           member->neighbours_.who(member->rank_), " and ", member->neighbours_.who(peer),
                           " broke: ", error ? error.text() : "closed by the other side"));
  });
}

void Member::onGoodbye(int peer, std::uint64_t slices) {
  farewells_.heard(peer, slices);
  answerGoodbyes();
}

void Member::answerGoodbyes() {
  const auto needs = [this](int peer, std::uint64_t slicesBelow) {
    return !error_ && (machine_->needs(peer, slicesBelow) || (rails_ && rails_->needs(peer, slicesBelow)));
  };
  for (const int peer : farewells_.answerable(needs)) {
    control_->send(peer, ControlType::Farewell, "");
    if (!error_) machine_->leave(peer);
    if (!error_ && rails_) rails_->leave(peer);
  }
}

void Member::leave(std::function<void()> left) {
  assert(loop_.isCurrent());
  if (pipeline_ && pipeline_->hasCalls()) {
    fail(makeError(ErrorKind::Aborted, neighbours_.who(rank_), " destroyed group ", settings_.name, " while ",
                   pipeline_->oldestCall()->title,
                   " was not finished; wait for all works before destroy_process_group"));
  }
  if (!error_ && !open_) {
    fail(makeError(ErrorKind::PeerLeft, neighbours_.who(rank_), " has left group ", settings_.name,
                   " before all had joined it"));
  }
  std::vector<int> peers;
  if (!error_) {
    peers = control_->peers();
    control_->sendToAll(ControlType::Goodbye, std::to_string(pipeline_->slicesCompleted()));
  }
  farewells_.said(peers, std::move(left));
}

void Member::close() {
  assert(loop_.isCurrent());
  loop_.forgetUncaught(this);
  links_.reset();
  for (const auto& [call, timer] : deadlines_) loop_.cancel(timer);
  pipeline_.reset();
  tcp_.reset();
  tensorpipe_.reset();
  rails_.reset();
  machine_.reset();
  control_.reset();
}

}  // namespace fairring
