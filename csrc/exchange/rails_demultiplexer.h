// The rails of a group, over the same channels: one set for slices of the host's tensors and one for those of a
// device's. The two know nothing of each other: a program may wait on its host for calls of one kind while a device is
// held up in calls of the other, so neither may stand in a queue behind the other. On the loop only.
#pragma once

#include <set>

#include "exchange/rails.h"
#include "transport/traffic_class.h"

namespace fairring {

// A slice of a device's tensor has this bit set in its number; the rest counts from 0.
inline constexpr std::uint64_t kDeviceBit = 1ULL << 62;
static_assert(kDeviceBit < kExpressBit);

struct Watermarks {  // all slices below these numbers
  ByTrafficClass<std::uint64_t> host = {firstSlice(TrafficClass::Bulk), firstSlice(TrafficClass::Express)};
  std::uint64_t device = kDeviceBit;
};

class RailsDemultiplexer final : public MessageReceiver {
 public:
  RailsDemultiplexer(Loop& loop, int rank, const Troubles& troubles);

  Rails& host() { return host_; }
  Rails& device() { return device_; }

  void use(Channels& channels);  // before the first slice
  std::set<int> missing() const;
  bool needs(int peer, const Watermarks& slicesBelow) const;
  void leave(int peer);
  void stop();
  TrafficByLevel traffic() const;  // sent

  std::byte* place(int peer, const MessageHeader& header) override { return of(header).place(peer, header); }
  void arrived(int peer, const MessageHeader& header) override { of(header).arrived(peer, header); }
  void ended(int peer, const Error& error) override { host_.ended(peer, error); }  // it speaks for both

 private:
  Rails& of(const MessageHeader& header) {
    return trafficClassOf(header.slice) == TrafficClass::Bulk && header.slice >= kDeviceBit ? device_ : host_;
  }

  Rails host_;
  Rails device_;
  bool stopped_ = false;
};

}  // namespace fairring
