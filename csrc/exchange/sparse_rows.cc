#include "exchange/sparse_rows.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/key_bits.h"

namespace fairring {

namespace {

using Keys = std::vector<std::uint64_t>;

// The place of the key, which is among these, from there on. A galloping search: the place is near if many rows are
// there, and few steps reach it if few are.
std::uint64_t placeOf(std::uint64_t key, std::span<const std::uint64_t> keys, std::uint64_t from) {
  std::uint64_t step = 1;
  while (from + step < keys.size() && keys[from + step] <= key) {
    from += step;
    step *= 2;
  }
  const auto some = keys.subspan(from, std::min(step, keys.size() - from));
  return from + static_cast<std::uint64_t>(std::ranges::lower_bound(some, key) - some.begin());
}

Keys mergedInPairs(std::vector<Keys> merged) {
  while (merged.size() > 1) {
    std::vector<Keys> next;
    for (std::size_t i = 0; i + 1 < merged.size(); i += 2) {
      Keys& both = next.emplace_back();
      both.reserve(merged[i].size() + merged[i + 1].size());
      std::ranges::set_union(merged[i], merged[i + 1], std::back_inserter(both));
    }
    if (merged.size() % 2 == 1) next.push_back(std::move(merged.back()));
    merged = std::move(next);
  }
  return std::move(merged.front());
}

// The rows of a call and which of them each rank has: by bits of all possible rows if bits came, or if there are not
// many times more possible rows than listed keys.
class CallRows {
 public:
  explicit CallRows(const KeysByRank& keys) : lists_(keys.lists), bits_(keys.bits) {
    if (bits_.empty()) setBits();
    if (bits_.empty()) {
      all = mergedInPairs(lists_);
      return;
    }
    callBits_.resize(bits_.front().size());
    for (const auto& bits : bits_) uniteKeys(callBits_, bits);
    all = keysIn(callBits_);
  }

  // Adds a rank's rows to these bits, one for each row of the call.
  void addTo(std::span<std::uint64_t> rows, int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    if (!bits_.empty()) return addPlaces(rows, bits_[at], callBits_);
    std::uint64_t place = 0;
    for (const std::uint64_t key : lists_[at]) {
      place = placeOf(key, all, place);
      setKey(rows, place);
    }
  }

  Keys all;  // each once, ascending

 private:
  void setBits() {
    constexpr std::uint64_t kWordsPerKey = 4;
    std::uint64_t keysBelow = 0;
    std::uint64_t listed = 0;
    for (const Keys& list : lists_) {
      if (!list.empty()) keysBelow = std::max(keysBelow, list.back() + 1);
      listed += list.size();
    }
    if (wordsFor(keysBelow) > kWordsPerKey * listed / lists_.size()) return;
    ownBits_.assign(lists_.size(), KeyBits(wordsFor(keysBelow)));
    for (std::size_t rank = 0; rank < lists_.size(); ++rank) setKeys(ownBits_[rank], lists_[rank]);
    bits_.assign(ownBits_.begin(), ownBits_.end());
  }

  const std::vector<Keys>& lists_;
  std::vector<std::span<const std::uint64_t>> bits_;  // of each rank; none: the lists are used
  std::vector<KeyBits> ownBits_;                      // the bits that these refer to, if lists came
  KeyBits callBits_;
};

}  // namespace

SparseRows::SparseRows(const Topology& topology, int rank, const KeysByRank& keys, std::uint64_t rowBytes,
                       const std::byte* values)
    : values_(values), rank_(rank) {
  CallRows call(keys);
  const std::uint64_t words = wordsFor(call.all.size());
  const int machine = topology.machineOf(rank);
  const int site = topology.siteOf(machine);
  std::map<int, KeyBits> ofMachines;  // of this site
  std::map<int, KeyBits> ofSites;
  for (const int other : topology.machinesOf(site)) ofMachines[other].resize(words);
  for (int other = 0; other < topology.sites(); ++other) ofSites[other].resize(words);
  for (int other = 0; other < topology.world(); ++other) {
    const int itsMachine = topology.machineOf(other);
    const int itsSite = topology.siteOf(itsMachine);
    groupOf_[0].push_back(other);
    groupOf_[1].push_back(itsMachine);
    groupOf_[2].push_back(itsSite);
    if (itsMachine != machine) {
      call.addTo(itsSite == site ? ofMachines[itsMachine] : ofSites[itsSite], other);
      continue;
    }
    KeyBits rows(words);
    call.addTo(rows, other);
    uniteKeys(ofMachines[machine], rows);
    rowSets_[0].try_emplace(other, std::move(rows), rowBytes);
  }
  for (auto& [other, rows] : ofMachines) {
    uniteKeys(ofSites[site], rows);
    rowSets_[1].try_emplace(other, std::move(rows), rowBytes);
  }
  for (auto& [other, rows] : ofSites) rowSets_[2].try_emplace(other, std::move(rows), rowBytes);
  all_ = std::move(call.all);
}

const RowSet& SparseRows::of(int level, int rank) const {
  const auto at = static_cast<std::size_t>(level);
  return rowSets_[at].at(groupOf_[at][static_cast<std::size_t>(rank)]);
}

std::uint64_t SparseRows::most(int level) const {
  std::uint64_t bytes = 0;
  for (const auto& [group, rowSet] : rowSets_[static_cast<std::size_t>(level)]) bytes = std::max(bytes, rowSet.bytes());
  return bytes;
}

}  // namespace fairring
