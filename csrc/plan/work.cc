#include "plan/work.h"

#include <algorithm>

namespace fairring {

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
    const std::uint64_t times = std::min<std::uint64_t>(step.passedOnTo, peers);
    return {here.rails * times, held * times};
  }
  if (step.verb == Verb::AllReduce) return {here.rails * peers, held * peers, sums ? held * here.owners : 0};
  return {here.rails * peers, held * peers / here.owners, sums ? held : 0};
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
