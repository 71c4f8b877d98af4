#include "group/lineage.h"

namespace fairring {

std::shared_ptr<Lineage> Lineage::descendant() const {
  auto made = std::make_shared<Lineage>();
  const std::lock_guard lock(mutex_);
  made->history_ = history_;
  made->attempts_ = attempts_;
  return made;
}

void Lineage::leave(const GroupId& group, std::uint64_t complete) {
  const std::lock_guard lock(mutex_);
  history_.leave(group, complete);
  last_.reset();
}

std::array<std::byte, GroupHistory::kBytes> Lineage::told() const {
  const std::lock_guard lock(mutex_);
  return history_.encode();
}

void Lineage::learn(int rank, std::span<const std::byte> toldByAll) {
  std::vector<GroupHistory> histories;
  for (; toldByAll.size() >= GroupHistory::kBytes; toldByAll = toldByAll.subspan(GroupHistory::kBytes))
    histories.push_back(GroupHistory::decode(toldByAll.first<GroupHistory::kBytes>()));
  const std::optional<Agreement> agreed = GroupHistory::agree(histories);
  if (!agreed) return;
  const std::lock_guard lock(mutex_);
  last_.emplace();
  last_->ofRank = agreed->ofRank;
  if (agreed->ofRank.at(static_cast<std::size_t>(rank)))
    last_->here.emplace(history_.ordinalOf(agreed->group), agreed->complete);
  history_.learn(*agreed);
}

std::optional<Lineage::LastComplete> Lineage::lastComplete() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::uint64_t Lineage::groupsLeft() const {
  const std::lock_guard lock(mutex_);
  return history_.groupsLeft();
}

int Lineage::countAttempt(const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  return ++attempts_[ranks];
}

}  // namespace fairring
