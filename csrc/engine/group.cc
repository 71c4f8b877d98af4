#include "engine/group.h"

#include <future>

#include "engine/member.h"

namespace fairring {

namespace {

// How long a group that is destroyed waits for its peers to have what they need of it. They answer by themselves as
// soon as they have; only one that is stopped or cut off makes this rank wait so long.
constexpr std::chrono::seconds kLeaveTimeout{30};

}  // namespace

Group::Group(Threads threads, std::shared_ptr<Entrance> entrance, GroupSettings settings, std::vector<RankFacts> facts)
    : threads_(threads),
      member_(std::make_shared<Member>(threads, std::move(entrance), std::move(settings), std::move(facts))) {
  threads_.slices.loop().post([member = member_] { member->open(); });
}

Group::~Group() {
  const auto left = std::make_shared<std::promise<void>>();
  threads_.slices.loop().post([member = member_, left] { member->leave([left] { left->set_value(); }); });
  left->get_future().wait_for(kLeaveTimeout);
  threads_.slices.runAndWait([this] { member_->close(); });
}

void Group::submit(Call call, bool waited) {
  const std::lock_guard lock(order_);
  const Journal::Entry entry = member_->journal().record(call.signature);
  Loop& loop = threads_.slices.loop();
  if (waited && loop.runHere([&] { member_->submit(std::move(call), entry); })) return;
  loop.post([member = member_, call = std::move(call), entry]() mutable { member->submit(std::move(call), entry); });
}

std::uint64_t Group::enter(OutsideCall call) {
  const std::lock_guard lock(order_);
  const std::uint64_t ticket = ++outsideCalls_;
  const std::uint64_t number = call.compared ? member_->journal().record(call.signature).number : 0;
  threads_.slices.loop().post([member = member_, ticket, number, call = std::move(call)]() mutable {
    member->enter(ticket, number, std::move(call));
  });
  return ticket;
}

void Group::finish(std::uint64_t outsideCall) {
  threads_.slices.loop().post([member = member_, outsideCall] { member->finish(outsideCall); });
}

void Group::abort(const Error& error) {
  threads_.slices.loop().post([member = member_, error] { member->fail(error); });
}

Error Group::error() const { return member_->error(); }

TrafficByLevel Group::traffic() const {
  TrafficByLevel moved;
  threads_.slices.runAndWait([&] { moved = member_->traffic(); });
  return moved;
}

}  // namespace fairring
