// The identity of a slice of a group: its queue, and its place there. Within a queue everything goes in sequence;
// between queues nothing waits, because each has staging, flags and credits of its own. So a small call does not queue
// behind a large one, nor a call on the host's tensors behind one that a device holds up. Values; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "base/loop.h"
#include "transport/traffic_class.h"

namespace fairring {

enum class SliceQueue : std::uint8_t { HostBulk, HostExpress, Device };
inline constexpr std::array kSliceQueues{SliceQueue::HostBulk, SliceQueue::HostExpress, SliceQueue::Device};

inline TrafficClass trafficClassOf(SliceQueue queue) {
  return queue == SliceQueue::HostExpress ? TrafficClass::Express : TrafficClass::Bulk;
}

template <class T>
class BySliceQueue {
 public:
  T& operator[](SliceQueue queue) { return values_[static_cast<std::size_t>(queue)]; }
  const T& operator[](SliceQueue queue) const { return values_[static_cast<std::size_t>(queue)]; }

 private:
  std::array<T, kSliceQueues.size()> values_{};
};

using Watermarks = BySliceQueue<std::uint64_t>;  // the slices of each queue whose sequence number is below this one

struct SliceId {
  SliceQueue queue = SliceQueue::HostBulk;
  std::uint64_t sequence = 0;  // in its queue, from 0; the same on all ranks

  auto operator<=>(const SliceId&) const = default;

  // The form that messages carry: the highest bit means HostExpress, else the next one Device.
  std::uint64_t onWire() const {
    switch (queue) {
      case SliceQueue::HostBulk: return sequence;
      case SliceQueue::HostExpress: return kExpress | sequence;
      case SliceQueue::Device: return kDevice | sequence;
    }
    return sequence;
  }
  static SliceId fromWire(std::uint64_t number) {
    if ((number & kExpress) != 0) return {SliceQueue::HostExpress, number & ~kExpress};
    if ((number & kDevice) != 0) return {SliceQueue::Device, number & ~kDevice};
    return {SliceQueue::HostBulk, number};
  }

 private:
  static constexpr std::uint64_t kExpress = 1ULL << 63;
  static constexpr std::uint64_t kDevice = 1ULL << 62;
};

// The urgency of the slice's jobs on the loop: express goes first.
inline std::uint64_t urgencyOf(SliceId slice) {
  return slice.queue == SliceQueue::HostExpress ? slice.sequence : Loop::kPatient + slice.sequence;
}

}  // namespace fairring
