#include "engine/group.h"

#include <future>

#include "engine/member.h"

namespace fairring {

namespace {

// How long a group that is destroyed waits for its peers to have what they need of it. They answer by themselves as
// soon as they have; only one that is stopped or cut off makes this rank wait so long.
constexpr std::chrono::seconds kLeaveTimeout{30};

}  // namespace

Group::Group(LoopThread& loop, std::shared_ptr<Entrance> entrance, GroupSettings settings, std::vector<RankFacts> facts)
    : loop_(loop),
      member_(std::make_shared<Member>(loop.loop(), std::move(entrance), std::move(settings), std::move(facts))) {
  loop_.loop().post([member = member_] { member->open(); });
}

Group::~Group() {
  const auto left = std::make_shared<std::promise<void>>();
  loop_.loop().post([member = member_, left] { member->leave([left] { left->set_value(); }); });
  left->get_future().wait_for(kLeaveTimeout);
  loop_.runAndWait([this] { member_->close(); });
}

void Group::submit(Call call) {
  loop_.loop().post([member = member_, call = std::move(call)]() mutable { member->submit(std::move(call)); });
}

void Group::abort(const Error& error) {
  loop_.loop().post([member = member_, error] { member->fail(error); });
}

Error Group::error() const { return member_->error(); }

const Topology& Group::topology() const { return member_->topology(); }

}  // namespace fairring
