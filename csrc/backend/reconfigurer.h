// The part of a rank that stays from one membership to the next, where its group may be reconfigured: the process's
// runtime, and so its listener; the content of its handles; the uuids that were used. Memberships that are over end
// here with their NCCL, in the background: a peer that is stopped must not hold up the next one.
//
// Any thread; end() waits, without the GIL, and on none of the runtime's threads.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend/membership.h"
#include "backend/stock_nccl.h"
#include "group/roster.h"

namespace fairring {

class Reconfigurer {
 public:
  explicit Reconfigurer(MembershipOptions options);

  // rank: in the group that this rank is in, or Handle::kNewcomer.
  std::string handle(int rank);
  // handles[r] becomes rank r. Throws Failure(Usage) for a uuid that was used before, and as rosterOf() does.
  Roster roster(std::int64_t uuid, const std::vector<std::string>& handles);
  // Retires the members that the group had; null: it had none. NCCL's calls are broken off.
  void retire(std::shared_ptr<Membership> membership, std::shared_ptr<StockNccl> nccl);
  void end();  // no handles from now on

 private:
  const MembershipOptions options_;
  const std::string token_;

  std::mutex mutex_;  // guards all below
  std::shared_ptr<Runtime> runtime_;
  RankFacts facts_;  // once there is a runtime
  std::set<std::int64_t> usedUuids_;
  std::vector<std::future<void>> retiring_;
};

}  // namespace fairring
