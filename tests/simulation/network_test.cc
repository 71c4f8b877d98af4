// Links in virtual time: what is carried takes what it must, and connections share a link alike.
#include <gtest/gtest.h>

#include <map>

#include "simulation/network.h"

namespace fairring::simulation {
namespace {

constexpr double kRate = 1e6;  // a byte a microsecond
constexpr std::uint64_t kQuantum = 1000;

class Wires {
 public:
  explicit Wires(std::vector<int> machineOf)
      : network(events, std::move(machineOf),
                {.bytesPerSecond = kRate, .latencySeconds = 1e-3, .quantumBytes = kQuantum}) {}

  void send(int from, int to, std::uint64_t bytes, bool isUrgent = false) {
    const std::size_t number = arrived_.size();
    arrived_.emplace_back(0);
    network.send(from, to,
                 {.bytes = bytes,
                  .isUrgent = isUrgent,
                  .begun = [] {},
                  .whole = [this, number] { arrived_[number] = events.now(); }});
  }
  // In microseconds, by the order in which they were sent; 0: never.
  std::vector<std::int64_t> arrivals() {
    while (!events.empty()) events.runNext();
    std::vector<std::int64_t> micros;
    micros.reserve(arrived_.size());
    for (const Time time : arrived_) micros.push_back(time.count() / 1000);
    return micros;
  }

  EventQueue events;
  Network network;

 private:
  std::vector<Time> arrived_;
};

using Micros = std::vector<std::int64_t>;

TEST(EventQueue, EventsHappenInOrderAndThoseOfOneTimeAsTheyWerePut) {
  EventQueue events;
  std::string order;
  events.at(Time(5), [&] { order += 'c'; });
  events.at(Time(3), [&] {
    order += 'a';
    events.at(Time(1), [&] { order += 'b'; });  // that is over: now
  });
  events.at(Time(5), [&] { order += 'd'; });
  while (!events.empty()) events.runNext();
  EXPECT_EQ(order, "abcd");
  EXPECT_EQ(events.now(), Time(5));
}

TEST(Network, AMessageAloneTakesTheLatencyAndTheTimeOfOneLink) {
  Wires wires({0, 1});
  wires.send(0, 1, 10'000);
  EXPECT_EQ(wires.arrivals(), (Micros{11'000}));
}

TEST(Network, ConnectionsShareTheLinkOfTheirSender) {
  Wires wires({0, 0, 1, 2});
  wires.send(0, 2, 10'000);
  wires.send(1, 3, 5'000);
  EXPECT_EQ(wires.arrivals(), (Micros{16'000, 12'000}));
}

TEST(Network, ConnectionsShareTheLinkOfTheirReceiver) {
  Wires wires({0, 1, 2});
  wires.send(0, 2, 10'000);
  wires.send(1, 2, 10'000);
  EXPECT_EQ(wires.arrivals(), (Micros{20'000, 21'000}));
}

TEST(Network, BothDirectionsOfALinkAreFree) {
  Wires wires({0, 1});
  wires.send(0, 1, 10'000);
  wires.send(1, 0, 10'000);
  EXPECT_EQ(wires.arrivals(), (Micros{11'000, 11'000}));
}

TEST(Network, UrgentMessagesGoBeforeTheRestOfTheirConnection) {
  Wires wires({0, 1});
  wires.send(0, 1, 10'000);
  wires.send(0, 1, 500, true);
  EXPECT_EQ(wires.arrivals(), (Micros{11'500, 2'500}));
}

TEST(Network, WhatIsCutOffArrivesWhenTheLinkIsThereAgainOrNever) {
  Wires wires({0, 1, 2});
  wires.network.cut(0, 1, std::chrono::seconds(1));
  wires.network.cut(0, 2, kNever);
  wires.send(0, 1, 1'000);
  wires.send(0, 2, 1'000);
  wires.send(1, 0, 1'000);  // the other way is open
  EXPECT_EQ(wires.arrivals(), (Micros{1'001'000, 0, 2'000}));
}

TEST(Network, WhatHasNotLeftIsDroppedWithItsSender) {
  Wires wires({0, 1});
  wires.send(0, 1, kQuantum);
  wires.send(0, 1, kQuantum);
  wires.network.drop(0);
  EXPECT_EQ(wires.arrivals(), (Micros{2'000, 0}));
}

}  // namespace
}  // namespace fairring::simulation
