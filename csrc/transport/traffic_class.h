// The two traffic classes of a group's slices: those of small calls do not stand behind those of large ones. Within
// a class everything goes by number; between the two nothing waits: each has staging, flags and credits of its own.
// They share what can't be held up for long: channels (send_queue.h) and the loop's time (loop.h), where express goes
// first, but not always, so that bulk gets on too. A slice's number tells its class: its highest bit is set in express.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "base/loop.h"

namespace fairring {

enum class TrafficClass : std::uint8_t { Bulk, Express };
inline constexpr std::array kTrafficClasses{TrafficClass::Bulk, TrafficClass::Express};

template <class T>
class ByTrafficClass {
 public:
  ByTrafficClass() = default;
  ByTrafficClass(T bulk, T express) : values_{std::move(bulk), std::move(express)} {}
  T& operator[](TrafficClass trafficClass) { return values_[static_cast<std::size_t>(trafficClass)]; }
  const T& operator[](TrafficClass trafficClass) const { return values_[static_cast<std::size_t>(trafficClass)]; }

 private:
  std::array<T, kTrafficClasses.size()> values_{};
};

inline constexpr std::uint64_t kExpressBit = 1ULL << 63;
static_assert(kExpressBit == Loop::kPatient);

inline std::uint64_t firstSlice(TrafficClass trafficClass) {
  return trafficClass == TrafficClass::Express ? kExpressBit : 0;
}
inline TrafficClass trafficClassOf(std::uint64_t slice) {
  return slice >= kExpressBit ? TrafficClass::Express : TrafficClass::Bulk;
}
inline std::uint64_t placeOf(std::uint64_t slice) { return slice & ~kExpressBit; }  // in its class, from 0
// As a job of the loop.
inline std::uint64_t urgencyOf(std::uint64_t slice) { return slice ^ kExpressBit; }

}  // namespace fairring
