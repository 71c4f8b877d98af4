#include "group/agreement.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <ranges>
#include <tuple>

namespace fairring {
namespace {

constexpr std::size_t kNumberBytes = 8;

void put(std::byte*& to, std::uint64_t number) {
  std::memcpy(to, &number, kNumberBytes);
  to += kNumberBytes;
}

std::uint64_t take(const std::byte*& from) {
  std::uint64_t number = 0;
  std::memcpy(&number, from, kNumberBytes);
  from += kNumberBytes;
  return number;
}

}  // namespace

void GroupHistory::leave(const GroupId& group, std::uint64_t complete) {
  const auto known = std::ranges::find(groups_, group, &Earlier::group);
  if (known == groups_.end()) {
    groups_.push_back({group, complete, std::nullopt, left_++});
    return forgetWhatMattersLeast();
  }
  if (known->complete != complete) *known = {group, complete, std::nullopt, known->ordinal};
}

// What came before the last group that has met is settled; attempts that came to nothing say only that.
void GroupHistory::forgetWhatMattersLeast() {
  if (groups_.size() <= kKept) return;
  const auto hasMet = [](const Earlier& one) { return one.complete > 0; };
  const auto newestFirst = std::ranges::find_if(groups_ | std::views::reverse, hasMet);
  const auto last = newestFirst == groups_.rend() ? groups_.begin() : std::prev(newestFirst.base());
  groups_.erase(last == groups_.begin() ? std::next(last) : groups_.begin());
}

void GroupHistory::learn(const Agreement& agreement) {
  meetings_ = agreement.meetings;
  const auto known = std::ranges::find(groups_, agreement.group, &Earlier::group);
  if (known == groups_.end()) return;  // it comes from elsewhere
  known->agreed = agreement.complete;
  groups_.erase(groups_.begin(), known);
}

std::uint64_t GroupHistory::ordinalOf(const GroupId& group) const {
  const auto known = std::ranges::find(groups_, group, &Earlier::group);
  return known == groups_.end() ? left_ : known->ordinal;
}

std::array<std::byte, GroupHistory::kBytes> GroupHistory::encode() const {
  std::array<std::byte, kBytes> bytes{};
  std::byte* to = bytes.data();
  put(to, meetings_ << 8 | groups_.size());
  for (const Earlier& one : groups_) {
    to = std::ranges::copy(one.group, to).out;
    put(to, one.complete);
    put(to, one.agreed ? *one.agreed + 1 : 0);
  }
  return bytes;
}

GroupHistory GroupHistory::decode(std::span<const std::byte, kBytes> bytes) {
  GroupHistory history;
  const std::byte* from = bytes.data();
  const std::uint64_t head = take(from);
  history.meetings_ = head >> 8;
  history.groups_.resize(std::min<std::uint64_t>(head & 0xff, kKept));
  for (Earlier& one : history.groups_) {
    std::copy_n(from, one.group.size(), one.group.begin());
    from += one.group.size();
    one.complete = take(from);
    if (const std::uint64_t agreed = take(from)) one.agreed = agreed - 1;
  }
  return history;
}

GroupHistory::Complete GroupHistory::completeEverywhere(const std::vector<GroupHistory>& ofRanks) {
  Complete everywhere;
  for (const GroupHistory& history : ofRanks) {
    for (const Earlier& one : history.groups_) {
      Earlier& all = everywhere.try_emplace(one.group, one).first->second;
      all.complete = std::min(all.complete, one.complete);
      if (one.agreed) all.agreed = std::min(all.agreed.value_or(*one.agreed), *one.agreed);
    }
  }
  // What has been learnt once holds: somebody has acted on it.
  for (auto& [group, all] : everywhere) all.complete = all.agreed.value_or(all.complete);
  return everywhere;
}

// The newest group whose ranks have met, for a group's first call is its meeting; else the one to begin with.
const GroupHistory::Earlier* GroupHistory::lastComplete(const Complete& everywhere) const {
  const auto hasMet = [&](const Earlier& one) { return everywhere.at(one.group).complete > 0; };
  const auto newest = std::ranges::find_if(groups_ | std::views::reverse, hasMet);
  if (newest != groups_.rend()) return &*newest;
  return groups_.empty() ? nullptr : &groups_.front();
}

// If the ranks come from several groups, the one that most meetings have led to counts, then the one of most ranks.
std::optional<Agreement> GroupHistory::agree(const std::vector<GroupHistory>& ofRanks) {
  const Complete everywhere = completeEverywhere(ofRanks);
  std::vector<const Earlier*> last;
  last.reserve(ofRanks.size());
  for (const GroupHistory& history : ofRanks) last.push_back(history.lastComplete(everywhere));
  std::optional<Agreement> best;
  std::tuple<std::uint64_t, std::size_t> weight;
  for (const Earlier* const candidate : last) {
    if (candidate == nullptr || (best && best->group == candidate->group)) continue;
    Agreement agreement;
    agreement.group = candidate->group;
    agreement.complete = everywhere.at(candidate->group).complete;
    std::size_t ranks = 0;
    for (std::size_t rank = 0; rank < last.size(); ++rank) {
      agreement.ofRank.emplace_back();
      if (last[rank] == nullptr || last[rank]->group != candidate->group) continue;
      if (last[rank]->complete < agreement.complete) continue;  // those who agreed on that had met without it
      agreement.ofRank.back() = last[rank]->complete;
      agreement.meetings = std::max(agreement.meetings, ofRanks[rank].meetings_ + 1);
      ++ranks;
    }
    const std::tuple itsWeight(agreement.meetings, ranks);
    if (best && itsWeight <= weight) continue;
    weight = itsWeight;
    best = std::move(agreement);
  }
  return best;
}

}  // namespace fairring
