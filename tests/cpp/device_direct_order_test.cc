// The requirements of chains on a device with rails of its own: every event, and launches that are the same on all
// ranks. A test leaves one requirement out, and has to see the failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "device_ranks.h"

namespace fairring::testing {
namespace {

using Settings = DeviceRank::Settings;

constexpr std::size_t kStreams = 4;
constexpr std::size_t kCallers = kStreams;  // the index of the callers' stream
constexpr std::size_t kTelling = kStreams + 1;

DeviceCluster clusterOf(const Machines& machines, unsigned seed, const Settings& settings) {
  return {
      machines, 96 * kKiB, 32 * kKiB, seed, [=](int) { return settings; }, builtInRows("tcp"), WhoseRails::TheDevices};
}

bool runs(unsigned seed, const Settings& settings) {
  DeviceCluster cluster = clusterOf({{2, 1, 1}}, seed, settings);
  const std::uint64_t slice = 32 * kKiB / sizeof(float);
  DeviceProgram program(cluster, {3 * slice, 2 * slice + 5, 700, slice, 4 * slice, 9});
  program.makeAtRandom();
  return cluster.drain() && program.wrong() == 0;
}

TEST(DirectOrder, WhateverIsLeftOutIsSeen) {
  struct Omission {
    const char* what;
    std::function<bool(std::size_t waits, std::size_t recorded)> omitsWait;
  };
  const Omission omissions[] = {
      {"the event behind which the input is there", [](auto, auto recorded) { return recorded == kCallers; }},
      {"the event that ends the slice which had the place before",
       [](auto waits, auto recorded) { return waits < kStreams && recorded < kStreams; }},
      {"the event that the user waits for", [](auto waits, auto) { return waits == kCallers; }},
  };
  for (const Omission& omission : omissions) {
    Settings lacking;
    lacking.omitsWait = omission.omitsWait;
    bool seen = false;
    for (unsigned seed = 0; seed < 40 && !seen; ++seed) {
      ASSERT_TRUE(runs(seed, {})) << "with everything, seed " << seed;
      seen = !runs(seed, lacking);
    }
    EXPECT_TRUE(seen) << "nobody missed " << omission.what;
  }
}

// The loop would take a call for over while its slices are under way.
TEST(DirectOrder, ACallIsOverForTheLoopWhenAllOfItsSlicesAre) {
  const auto endsEarly = [](unsigned seed, const Settings& settings) {
    DeviceCluster cluster = clusterOf({{1, 1}}, seed, settings);
    constexpr std::uint64_t kElements = 40'000;
    std::vector<std::vector<float>> tensors(2, std::vector<float>(kElements, 1.0F));
    bool early = false;
    for (std::size_t r = 0; r < 2; ++r) {
      cluster.ranks[r]->onEnded = [&, r] { early = early || tensors[r] != std::vector<float>(kElements, 2.0F); };
      cluster.ranks[r]->call({.data = tensors[r].data(), .elements = kElements, .reduction = {}}, 1);
    }
    EXPECT_TRUE(cluster.drain());
    for (const auto& rank : cluster.ranks) EXPECT_EQ(rank->ended.size(), 1U);
    return early;
  };
  Settings lacking;
  lacking.omitsWait = [](auto waits, auto) { return waits == kTelling; };
  bool seen = false;
  for (unsigned seed = 0; seed < 40; ++seed) {
    EXPECT_FALSE(endsEarly(seed, {})) << "seed " << seed;
    seen = seen || endsEarly(seed, lacking);
  }
  EXPECT_TRUE(seen);
}

TEST(DirectOrder, CollectivesBetweenTwoCallsMeetHoweverFewQueuesTheDeviceHas) {
  for (const std::size_t connections : {1, 2, 8, 32}) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      Settings settings;
      settings.connections = connections;
      DeviceCluster cluster = clusterOf({{2, 2}}, seed, settings);
      std::vector<std::vector<float>> tensors(2 * cluster.world(), std::vector<float>(3000, 1.0F));
      for (std::size_t r = 0; r < cluster.world(); ++r) {
        DeviceRank& rank = *cluster.ranks[r];
        rank.call({.data = tensors[2 * r].data(), .elements = 3000, .reduction = {}}, 1);
        rank.device->meet(rank.device->callers(), 0);
        rank.call({.data = tensors[2 * r + 1].data(), .elements = 3000, .reduction = {}}, 2);
      }
      ASSERT_TRUE(cluster.drain()) << "stalled with " << connections << " queues, seed " << seed;
      for (const auto& tensor : tensors) ASSERT_EQ(tensor, std::vector<float>(3000, 4.0F));
    }
  }
}

TEST(DirectOrder, AFailureEndsCallsWhosePeersNeverCome) {
  DeviceCluster cluster = clusterOf({{1, 1}}, 1, {});
  std::vector<float> tensor(3000, 1.0F);
  cluster.ranks[0]->call({.data = tensor.data(), .elements = 3000, .reduction = {}}, 1);
  for (int step = 0; step < 1000; ++step) cluster.step();
  EXPECT_FALSE(cluster.ranks[0]->device->idle());
  cluster.giveUp();
  ASSERT_EQ(cluster.ranks[0]->ended.size(), 1U);
  EXPECT_EQ(cluster.ranks[0]->ended[0].text(), "given up");
  EXPECT_TRUE(std::ranges::all_of(tensor, [](float element) { return std::isnan(element); })) << "garbage";
}

}  // namespace
}  // namespace fairring::testing
