#include "simulation/timed_body.h"

#include <algorithm>

#include "exchange/transfers.h"

namespace fairring::simulation {

namespace {

constexpr std::uint64_t kShortBytes = 64 << 10;  // of a job that is over at once, as summation.cc has it

std::uint64_t filledBytes(const Slice& slice, std::size_t step) {
  if ((*slice.plan)[step].verb == Verb::Load) {
    std::uint64_t bytes = 0;
    for (const Portion& portion : slice.portions) bytes += portion.from == nullptr ? 0 : portion.end() - portion.begin;
    return bytes;
  }
  const Rail* const rail = machineRail(slice);
  return rail == nullptr ? 0 : slice.bytes(rail->range) - slice.bytes(rail->own());
}

}  // namespace

Job TimedBody::timed(std::uint64_t bytes, double bytesPerSecond) const {
  if (bytes == 0) return {};
  const auto piece = [core = &core_, bytes, bytesPerSecond]() mutable {
    const std::uint64_t now = std::min(bytes, kPieceBytes);
    core->charge(static_cast<double>(now) / bytesPerSecond);
    bytes -= now;
    return bytes > 0;
  };
  return Job(piece, bytes <= kShortBytes);
}

Job TimedBody::fill(const Slice& slice, std::size_t step) const {
  const std::uint64_t bytes = filledBytes(slice, step);
  if (!moves(slice)) return timed(bytes, core_.costs().copyBytesPerSecond);
  core_.charge(static_cast<double>(bytes) / core_.costs().copyBytesPerSecond);
  return DenseBody::fill(slice, step);
}

Job TimedBody::combine(const Slice& slice, std::size_t step, const PeerImages& images) const {
  std::uint64_t bytes = slice.isInTensor() ? 0 : slice.bytes(machineShard(slice));
  for (const auto& [peer, image] : images) bytes += slice.isInTensor() ? 0 : bytesCombined(slice, step, peer);
  if (!moves(slice)) return timed(bytes, core_.costs().sumBytesPerSecond);
  core_.charge(static_cast<double>(bytes) / core_.costs().sumBytesPerSecond);
  return DenseBody::combine(slice, step, images);
}

std::vector<Copy> TimedBody::deliver(const Slice& slice, const Range& shard, const std::byte* image) const {
  std::vector<Copy> copies = DenseBody::deliver(slice, shard, image);
  std::uint64_t bytes = 0;
  for (const Copy& copy : copies) bytes += copy.bytes;
  core_.charge(static_cast<double>(bytes) / core_.costs().copyBytesPerSecond);
  return moves(slice) ? copies : std::vector<Copy>();
}

Job TimedBody::afterReceiving(const Slice& slice, std::size_t step, const std::vector<Transfer>& transfers) const {
  const Step& what = (*slice.plan)[step];
  std::uint64_t bytes = 0;
  if (reduces(what.verb)) {
    for (const Rail& rail : slice.layout->at(what.level).rails)
      bytes += slice.bytes(reducedRange(what, rail)) * rail.owners.size();
  }
  if (!moves(slice)) return timed(bytes, core_.costs().sumBytesPerSecond);
  core_.charge(static_cast<double>(bytes) / core_.costs().sumBytesPerSecond);
  return DenseBody::afterReceiving(slice, step, transfers);
}

}  // namespace fairring::simulation
