#include "exchange/transfers.h"

namespace fairring {

namespace {

// Counted from the root's, owner p passes it on to p * passedOnTo + 1 and the next ones, passedOnTo in all.
bool passesOn(const Rail& rail, int root, int passedOnTo, int from, int to) {
  const int owners = static_cast<int>(rail.owners.size());
  const auto place = [&](int owner) { return (owner - root + owners) % owners; };
  return place(to) > 0 && (place(to) - 1) / passedOnTo == place(from);
}

}  // namespace

RailRanges rangesOf(const Step& step, const Rail& rail, int root, int owner) {
  const Range mine = rail.own();
  const Range theirs = rail.shards[static_cast<std::size_t>(owner)];
  const Range none{rail.range.begin, rail.range.begin};
  const bool fromRoot = rail.self == root;
  const bool toRoot = owner == root;
  switch (step.verb) {
    case Verb::ReduceScatter: return {theirs, mine};
    case Verb::AllGather: return {toRoot ? none : mine, fromRoot ? none : theirs};  // of a broadcast it has all
    case Verb::Scatter: return {fromRoot ? theirs : none, toRoot ? mine : none};
    case Verb::Gather: return {toRoot ? mine : none, fromRoot ? theirs : none};
    case Verb::Relay:
      return {passesOn(rail, root, step.passedOnTo, rail.self, owner) ? rail.range : none,
              passesOn(rail, root, step.passedOnTo, owner, rail.self) ? rail.range : none};
    case Verb::AllReduce: return {rail.range, rail.range};
    case Verb::Load:
    case Verb::Store:
    case Verb::AllToAll: break;  // no ranges of a rail travel in these
  }
  return {none, none};
}

Range reducedRange(const Step& step, const Rail& rail) {
  return step.verb == Verb::AllReduce ? rail.range : rail.own();
}

std::vector<Range> reducedRanges(const Step& step, const Layout& layout) {
  std::vector<Range> ranges;
  for (const Rail& rail : layout.at(step.level).rails) ranges.push_back(reducedRange(step, rail));
  return ranges;
}

std::map<int, std::uint64_t> bytesByPeer(const std::vector<Transfer>& transfers, std::uint64_t Transfer::* bytes) {
  std::map<int, std::uint64_t> byPeer;
  for (const Transfer& transfer : transfers) {
    if (transfer.*bytes > 0) byPeer[transfer.peer] += transfer.*bytes;
  }
  return byPeer;
}

}  // namespace fairring
