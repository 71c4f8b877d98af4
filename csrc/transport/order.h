// The two orders in which a group's slices travel: those of small calls do not stand behind those of large ones. Within
// an order everything goes by number; between the two nothing waits: each has staging, flags and credits of its own.
// They share what can't be held up for long: channels (send_queue.h) and the loop's time (loop.h), where express goes
// first, but not always, so that bulk gets on too. A slice's number tells its order: its highest bit is set in express.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "base/loop.h"

namespace fairring {

enum class Order : std::uint8_t { Bulk, Express };
inline constexpr std::array kOrders{Order::Bulk, Order::Express};

template <class T>
class ByOrder {
 public:
  ByOrder() = default;
  ByOrder(T bulk, T express) : values_{std::move(bulk), std::move(express)} {}
  T& operator[](Order order) { return values_[static_cast<std::size_t>(order)]; }
  const T& operator[](Order order) const { return values_[static_cast<std::size_t>(order)]; }

 private:
  std::array<T, kOrders.size()> values_{};
};

inline constexpr std::uint64_t kExpressBit = 1ULL << 63;
static_assert(kExpressBit == Loop::kPatient);

inline std::uint64_t firstSlice(Order order) { return order == Order::Express ? kExpressBit : 0; }
inline Order orderOf(std::uint64_t slice) { return slice >= kExpressBit ? Order::Express : Order::Bulk; }
inline std::uint64_t placeOf(std::uint64_t slice) { return slice & ~kExpressBit; }  // in its order, from 0
// As a job of the loop.
inline std::uint64_t urgencyOf(std::uint64_t slice) { return slice ^ kExpressBit; }

}  // namespace fairring
