#include "plan/work.h"

namespace fairring {

StepWork workOf(const Step& step, const Load& load, std::uint64_t sliceBytes) {
  const auto [rails, owners] = load.levels[step.level];
  const std::uint64_t held = load.heldBytes(step.level, sliceBytes);
  const std::uint64_t peers = owners - 1;
  const bool sums = step.verb != Verb::AllGather && peers > 0;
  if (step.level == 0) return {rails * peers, held, sums ? held : 0};
  if (step.verb == Verb::AllReduce) return {rails * peers, held * peers, sums ? held * owners : 0};
  return {rails * peers, held * peers / owners, sums ? held : 0};
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
