// What the simulated hardware is like. Everything that a simulation reckons times by stands here. Where the numbers
// come from docs/simulation.md says.
#pragma once

#include <cstdint>

namespace fairring::simulation {

struct NetworkCosts {
  static constexpr double kPayload = 0.944;  // of what a link carries; the rest is the headers of Ethernet, IP and TCP

  double bytesPerSecond = kPayload * 125e6;  // of each machine's link, each way, as payload
  double latencySeconds = 25e-6;             // from machine to machine
  std::uint64_t quantumBytes = 64 << 10;     // that a link carries of one connection before the next has its turn
};

struct CoreCosts {                       // of one rank's thread
  double wakeSeconds = 33e-6;            // of the core, when a rank that had nothing to do goes on
  double turnSeconds = 1.5e-6;           // of the loop, where something was due
  double callSeconds = 45e-6;            // from the user's call until the pipeline has it, and back
  double sendSeconds = 15e-6;            // of messages that go to one peer together
  double receiveSeconds = 10e-6;         // of a message
  double networkBytesPerSecond = 2.5e9;  // sent or received, between a tensor or staging and the network
  double copyBytesPerSecond = 20e9;
  double sumBytesPerSecond = 20e9;  // of input
};

struct Costs {
  NetworkCosts network;
  CoreCosts core;
};

}  // namespace fairring::simulation
