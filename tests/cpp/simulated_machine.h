// Level 0 of simulated devices: the ranks of a machine meet in the order of their launches, as in communicators. A
// meeting is over when all have come to it. Ranks that come with different slices never meet, and wait for ever. So do
// ranks whose peer has broken its communicator off, until they do so too.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "kernels/reduce.h"

namespace fairring::testing {

enum class Together { ReduceScatter, AllGather, Users };  // a communicator each

class SimulatedMachine {
 public:
  explicit SimulatedMachine(std::size_t ranks) : ranks_(ranks) {}

  // The number of the next meeting of a kind that this rank enqueues.
  std::size_t book(Together kind, std::size_t rank) { return booked_[{kind, rank}]++; }
  // Meetings of a kind follow one another, on any streams.
  bool mayCome(Together kind, std::size_t which, std::size_t rank) {
    return which == 0 || isOver(kind, which - 1, rank);
  }
  void come(Together kind, std::size_t which, std::size_t rank, const Slice& slice) {
    if (aborted_.contains(rank)) return;
    Meeting& meeting = meetings_[{kind, which}];
    meeting.slices.emplace(rank, slice);
    const bool agree =
        std::ranges::all_of(meeting.slices, [&](const auto& other) { return other.second.id == slice.id; });
    meeting.differs = meeting.differs || !agree;
    if (meeting.slices.size() < ranks_ || meeting.differs) return;
    for (const auto& [index, mine] : meeting.slices) {
      if (kind == Together::ReduceScatter) meeting.results[index] = sumOf(meeting, index);
      if (kind == Together::AllGather) meeting.results[index] = whole(meeting);
    }
    meeting.over = true;
  }

  bool isOver(Together kind, std::size_t which, std::size_t rank) {
    return aborted_.contains(rank) || meetings_[{kind, which}].over;
  }
  // The bytes that this rank gets; empty after an abort.
  std::vector<std::byte> take(Together kind, std::size_t which, std::size_t rank) {
    return std::exchange(meetings_[{kind, which}].results[rank], {});
  }
  void abort(std::size_t rank) {
    aborted_.insert(rank);
    for (auto& [which, meeting] : meetings_) {
      if (!meeting.over) meeting.slices.erase(rank);  // its memory may go
    }
  }

 private:
  struct Meeting {
    std::map<std::size_t, Slice> slices;
    std::map<std::size_t, std::vector<std::byte>> results;
    bool differs = false;
    bool over = false;
  };

  static Range shardOf(const Slice& slice, std::size_t rank) {
    const LevelLayout& machine = slice.layout->at(0);
    return machine.rails.empty() ? Range{} : machine.rails.front().shards[rank];
  }

  static std::vector<Portion> listed(const Slice& slice, const Range& shard) {
    std::vector<Portion> portions;
    std::ranges::copy(within(slice.portions, shard), std::back_inserter(portions));
    return portions;
  }

  static std::vector<std::byte> sumOf(const Meeting& meeting, std::size_t rank) {
    const Range shard = shardOf(meeting.slices.at(rank), rank);
    std::vector<std::byte> sum(shard.size());
    const std::vector<Portion> mine = listed(meeting.slices.at(rank), shard);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const auto [dtype, op, divisor] = mine[i].reduction;
      std::vector<Input> inputs;
      for (const auto& [index, slice] : meeting.slices) {
        const bool scaled = isFloat(dtype) && op == Op::Sum;
        inputs.push_back({listed(slice, shard)[i].from, scaled ? slice.scale : 1.0});
      }
      reduce({.dtype = dtype, .op = op}, sum.data() + (mine[i].begin - shard.begin), inputs, mine[i].elements);
    }
    return sum;
  }

  static std::vector<std::byte> whole(const Meeting& meeting) {
    std::vector<std::byte> bytes;
    for (const auto& [index, slice] : meeting.slices) {
      const Range shard = shardOf(slice, index);
      bytes.resize(slice.layout->bytes);
      if (shard.size() == 0) continue;
      std::memcpy(bytes.data() + shard.begin, slice.image + shard.begin, shard.size());
    }
    return bytes;
  }

  const std::size_t ranks_;
  std::map<std::pair<Together, std::size_t>, std::size_t> booked_;
  std::map<std::pair<Together, std::size_t>, Meeting> meetings_;
  std::set<std::size_t> aborted_;  // ranks
};

}  // namespace fairring::testing
