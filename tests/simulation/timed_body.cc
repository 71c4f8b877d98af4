#include "simulation/timed_body.h"

#include <algorithm>

#include "exchange/transfers.h"

namespace fairring::simulation {

namespace {

constexpr std::uint64_t kShortBytes = 64 << 10;  // of a job that is over at once, as summation.cc has it

// That this rank reads of its tensors for that part of the slice.
std::uint64_t readBytes(const Slice& slice, const Range& range) {
  std::uint64_t bytes = 0;
  for (const Portion& portion : within(slice.portions, range))
    bytes += portion.from == nullptr ? 0 : portion.end() - portion.begin;
  return bytes;
}

std::uint64_t filledBytes(const Slice& slice, std::size_t step) {
  if (slice.isInTensor()) return 0;
  const bool isAll = (*slice.plan)[step].verb == Verb::Load;
  return readBytes(slice, {0, slice.layout->bytes}) - (isAll ? 0 : readBytes(slice, machineShard(slice)));
}

// A job of its length where nothing is moved.
Job timed(Core& core, std::uint64_t bytes, double bytesPerSecond) {
  if (bytes == 0) return {};
  const auto piece = [&core, bytes, bytesPerSecond]() mutable {
    const std::uint64_t now = std::min(bytes, kPieceBytes);
    core.charge(static_cast<double>(now) / bytesPerSecond);
    bytes -= now;
    return bytes > 0;
  };
  return Job(piece, bytes <= kShortBytes);
}

// The job, whose cost is charged as it begins, or what stands in for it.
template <class MakeJob>
Job charged(Core& core, bool isMoved, std::uint64_t bytes, double bytesPerSecond, const MakeJob& job) {
  if (!isMoved) return timed(core, bytes, bytesPerSecond);
  core.charge(static_cast<double>(bytes) / bytesPerSecond);
  return job();
}

}  // namespace

Job TimedBody::fill(const Slice& slice, std::size_t step) const {
  return charged(core_, movesBytes_, filledBytes(slice, step), core_.costs().copyBytesPerSecond,
                 [&] { return DenseBody::fill(slice, step); });
}

Job TimedBody::combine(const Slice& slice, std::size_t step, const PeerImages& images) const {
  std::uint64_t bytes = 0;
  if (machineRail(slice) != nullptr && !slice.isInTensor()) {
    for (const int rank : machineRail(slice)->owners) bytes += bytesCombined(slice, step, rank);
  }
  return charged(core_, movesBytes_, bytes, core_.costs().sumBytesPerSecond,
                 [&] { return DenseBody::combine(slice, step, images); });
}

std::vector<Copy> TimedBody::deliver(const Slice& slice, const Range& shard, const std::byte* image) const {
  std::vector<Copy> copies = DenseBody::deliver(slice, shard, image);
  std::uint64_t bytes = 0;
  for (const Copy& copy : copies) bytes += copy.bytes;
  core_.charge(static_cast<double>(bytes) / core_.costs().copyBytesPerSecond);
  return movesBytes_ ? copies : std::vector<Copy>();
}

Job TimedBody::afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  const Step& what = (*slice.plan)[step];
  std::uint64_t bytes = 0;
  if (reduces(what.verb)) {
    for (const Rail& rail : slice.layout->at(what.level).rails)
      bytes += reducedRange(what, rail).size() * rail.owners.size();
  }
  return charged(core_, movesBytes_, bytes, core_.costs().sumBytesPerSecond,
                 [&] { return DenseBody::afterReceiving(slice, step, transfers); });
}

Job TimedCells::fill(const Slice& slice, std::size_t step) const {
  return charged(core_, true, ownBytes(), core_.costs().copyBytesPerSecond,
                 [&] { return CellBody::fill(slice, step); });
}

// On a machine of one rank nothing is collected at level 0, unless that is all there is.
Job TimedCells::combine(const Slice& slice, std::size_t step, const PeerImages& images) const {
  const bool collects = !images.empty() || slice.layout->levels.size() == 1;
  return charged(core_, true, collects ? heldBytes((*slice.plan)[step]) : 0, core_.costs().copyBytesPerSecond,
                 [&] { return CellBody::combine(slice, step, images); });
}

Job TimedCells::afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  return charged(core_, true, heldBytes((*slice.plan)[step]), core_.costs().copyBytesPerSecond,
                 [&] { return CellBody::afterReceiving(slice, step, transfers); });
}

}  // namespace fairring::simulation
