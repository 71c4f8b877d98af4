// The contract of every implementation of Channel, on any transport: the cases of transport_channels_delivery.h and
// transport_channels_ending.h. An implementation is a type with
//   static std::string obstacle();                      why it can't run here; empty if it can
//   static Joined join(Loop&, MessageReceiver&, Seat);   see transport_channels_mesh.h
//   kTellsNoDeath                                        if a peer's death is not noticed while nothing is sent
// and is put to the test by
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, ChannelsDelivery, Type);
//   INSTANTIATE_TYPED_TEST_SUITE_P(Name, ChannelsEnding, Type);
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "transport_channels_mesh.h"

namespace fairring {

constexpr std::size_t kKiB = 1 << 10;
constexpr std::size_t kMiB = 1 << 20;

template <class Implementation>
class ChannelsConformance : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string obstacle = Implementation::obstacle();
    if (!obstacle.empty()) GTEST_SKIP() << obstacle;
  }
};

}  // namespace fairring
