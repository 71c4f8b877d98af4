#include "plan/work.h"

#include <algorithm>

#include "plan/grain.h"

namespace fairring {

namespace {

// The work of a reduce-scatter or all-gather. A message sent and one received each count half, since a rank sends as
// many as it receives where all owners have shards. Bytes are those of the busier direction.
StepWork shardedWork(const LevelLoad& load, std::uint64_t held, bool sums) {
  const auto [rails, owners, shards] = load;
  const std::uint64_t messages = ((owners - 1) + (shards - 1) + 1) / 2;
  return {rails * messages, held * (owners - 1) / shards, sums ? held * owners / shards : 0};
}

}  // namespace

StepWork workOf(const Step& step, const Load& load, std::uint64_t sliceBytes) {
  const LevelLoad& here = load.levels[step.level];
  const std::uint64_t held = load.heldBytes(step.level, sliceBytes);
  const std::uint64_t peers = here.owners - 1;
  const bool sums = reduces(step.verb) && peers > 0;
  if (step.verb == Verb::Load || step.verb == Verb::Store) {
    return {.bytes = load.heldBytes(Topology::kLevels, sliceBytes)};
  }
  if (step.level == 0) {
    const std::uint64_t summed = step.verb == Verb::AllReduce ? held * here.owners : held;
    return {here.rails * peers, held, sums ? summed : 0};
  }
  if (step.verb == Verb::Relay) {
    const std::uint64_t times = std::min<std::uint64_t>(step.shards, peers);
    return {here.rails * times, held * times};
  }
  if (step.verb == Verb::AllReduce) return {here.rails * peers, held * peers, sums ? held * here.owners : 0};
  return shardedWork(here, held, sums);
}

// With w owners among q ranks, a rank is an owner in w of q turns, and then holds something at the levels above.
StepWork meanWorkOf(const Step& step, const Load& load, std::uint64_t sliceBytes) {
  StepWork work = workOf(step, load, sliceBytes);
  const LevelLoad& here = load.levels[step.level];
  if (here.shards < here.owners) {  // a rank that owns nothing sends a message for each shard, and receives none
    work.messages = here.rails * ceilOf(here.shards * (here.owners - 1), here.owners);
  }
  for (int level = 0; level <= step.level; ++level) {
    const auto [rails, owners, shards] = load.levels[level];
    if (shards == owners) continue;
    if (level < step.level) work.messages = ceilOf(work.messages * shards, owners);
    work.bytes = work.bytes * shards / owners;
    work.summedBytes = work.summedBytes * shards / owners;
  }
  return work;
}

StepWork& StepWork::operator+=(const StepWork& other) {
  messages += other.messages;
  bytes += other.bytes;
  summedBytes += other.summedBytes;
  return *this;
}

double secondsOf(const StepWork& work, const CostRow& row) {
  return row.latencySeconds + row.perMessageSeconds * static_cast<double>(work.messages) +
         static_cast<double>(work.bytes) / row.bytesPerSecond +
         static_cast<double>(work.summedBytes) / row.summedBytesPerSecond;
}

}  // namespace fairring
