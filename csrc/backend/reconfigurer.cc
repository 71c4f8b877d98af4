#include "backend/reconfigurer.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace fairring {

Reconfigurer::Reconfigurer(MembershipOptions options) : options_(std::move(options)), token_(newToken()) {}

std::string Reconfigurer::handle(int rank) {
  const std::lock_guard lock(mutex_);
  if (!runtime_) {
    runtime_ = Membership::runtimeFor(options_);
    LockableMemory::Promise none;  // such a group uses no RDMA
    facts_ = Membership::factsHere(options_, *runtime_, none);
  }
  return toText(Handle{token_, rank, facts_});
}

Roster Reconfigurer::roster(std::int64_t uuid, const std::vector<std::string>& handles) {
  const std::lock_guard lock(mutex_);
  check(!usedUuids_.contains(uuid), ErrorKind::Usage, "uuid ", uuid, " was already used to reconfigure this group: ",
        "give each reconfiguration a fresh one, the same on all of its members");
  Roster roster = rosterOf(handles, token_, uuid, givenSecret(options_));
  usedUuids_.insert(uuid);
  return roster;
}

void Reconfigurer::retire(std::shared_ptr<Membership> membership, std::shared_ptr<StockNccl> nccl) {
  if (!membership && nccl->made().empty()) return nccl->end();
  // Shared with the thread, so that the membership survives a thread that can't be started.
  const auto ending = std::make_shared<std::shared_ptr<Membership>>(std::move(membership));
  const auto finish = [ending, nccl] {
    orLogged(kEndOfNccl, [&] { nccl->breakOff(); });
    orLogged(kEndOfNccl, [&] { nccl->end(); });
    ending->reset();  // behind NCCL, which looks into the members' store
  };
  try {
    const std::lock_guard lock(mutex_);
    std::erase_if(retiring_,
                  [](const auto& one) { return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    retiring_.push_back(std::async(std::launch::async, finish));
  } catch (const std::system_error&) {  // no threads left
    finish();
  }
}

void Reconfigurer::end() {
  std::vector<std::future<void>> retiring;
  std::shared_ptr<Runtime> runtime;
  {
    const std::lock_guard lock(mutex_);
    retiring.swap(retiring_);
    runtime.swap(runtime_);
  }
  retiring.clear();  // each waits for its membership's end
}

}  // namespace fairring
