// What a trial of the engine in virtual time does: who stands where, which calls are made, what goes wrong and when.
// Drawn from a seed, or read from a text, so that a failing one can be shortened by hand or by machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace fairring::testing {

struct ScriptedCall {
  Pattern pattern = Pattern::AllReduce;
  int root = -1;               // where the pattern has one
  std::uint64_t elements = 0;  // of the tensor, or of each rank's block
};

struct Fault {
  enum class Kind { Kill, Pause, Slow, Cut, Sever, Break, Lose, Late };
  Kind kind = Kind::Kill;
  int who =
      0;  // a rank, of Break the one whose lanes break; of Cut and Sever a machine; of Late the rank that begins late
  int other = 0;  // of those: the machine at which nothing arrives
  std::int64_t atMicros = 0;
  std::int64_t amount = 0;  // Pause, Cut, Late: microseconds; Slow: so many times; Sever, Lose are for ever
};

struct Script {
  std::uint64_t seed = 0;     // of delays, values, and of when a rank waits
  std::vector<int> machines;  // ranks of each
  bool interleaved = false;   // ranks dealt to the machines in turn
  int sites = 1;
  std::uint64_t stagingKiB = 512;
  std::uint64_t sliceKiB = 16;
  std::uint64_t eagerKiB = 4;
  std::uint64_t creditKiB = 8;
  std::uint64_t copiedKiB = 0;   // messages up to these are copied as they are sent
  bool waits = false;            // ranks wait for earlier calls before some later ones
  std::uint64_t lanes = 0;       // of TCP, between two ranks; 0: simulated channels
  bool weighted = false;         // shards have weights, which change after every few calls
  std::int64_t heartbeatMs = 0;  // the timeout of members of a group; 0: the engine alone
  std::vector<ScriptedCall> calls;
  std::vector<Fault> faults;

  int world() const;
  bool isFatal(const Fault& fault) const;  // calls may end with an error because of it
  std::string text() const;
};

// ofMembers: their ranks are whole members of a group.
Script drawn(std::uint64_t seed, bool ofMembers = false);
// What text() wrote. Nothing where it is no such text.
std::optional<Script> parsed(const std::string& text);
// Scripts that are a little shorter, the boldest first.
std::vector<Script> shortened(const Script& script);

}  // namespace fairring::testing
