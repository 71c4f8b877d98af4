// What a trial of the engine in virtual time does: who stands where, which calls are made, what goes wrong and when.
// Drawn from a seed, or read from a text, so that a failing one can be shortened by hand or by machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/topology.h"

namespace fairring::testing {

// Uneven: the blocks have `elements` at most, each another number; an all-to-all's cells for each pair of ranks.
// Sparse: an all-reduce of tensors of so many rows, of which each rank has some.
enum class Form : std::uint8_t { Dense, Uneven, Sparse };

struct ScriptedCall {
  Pattern pattern = Pattern::AllReduce;
  int root = -1;               // where the pattern has one
  std::uint64_t elements = 0;  // of the tensor, or of each rank's block
  int refuser = -1;            // the rank that has no memory for its part; -1: none
  Form form = Form::Dense;
  std::uint64_t tensors = 1;  // that the elements of each block are cut into, unequally; not of an all-to-all
};

struct Fault {
  enum class Kind { Kill, Pause, Slow, Cut, Sever, Break, Lose, Late, Idle, Refuse, Stranger, Freeze, Leap, Starve };
  Kind kind = Kind::Kill;
  int who = 0;    // a rank; of Cut and Sever a machine
  int other = 0;  // of those: the machine at which nothing arrives; of Stranger: what it does (sockets.h)
  std::int64_t atMicros = 0;
  std::int64_t amount = 0;  // microseconds; Slow: so many times; Kill, Break, Sever, Lose, Stranger have none; Starve:
                            // of the allocations from then on this one fails
  int round = 0;            // from whose beginning on atMicros counts, where there are rounds
  int step = 0;             // of that round, which counts from when the first of its members takes it; 0: its beginning
};

inline constexpr std::int64_t kForEverMicros = 1'000'000'000;  // who stands still for so long never goes on

struct Script {
  std::uint64_t seed = 0;     // of delays, values, and of when a rank waits
  std::vector<int> machines;  // ranks of each
  bool interleaved = false;   // ranks dealt to the machines in turn
  int sites = 1;
  bool grouped = false;  // all plans are in groups of machines, from four machines on
  std::uint64_t stagingKiB = 512;
  std::uint64_t sliceKiB = 16;
  std::uint64_t eagerKiB = 4;
  std::uint64_t creditKiB = 8;
  std::uint64_t copiedKiB = 0;   // messages up to these are copied as they are sent
  bool waits = false;            // ranks wait for earlier calls before some later ones
  bool late = false;             // inputs of some calls come after the calls
  std::uint64_t lanes = 0;       // of TCP, between two ranks; 0: simulated channels
  std::int64_t heartbeatMs = 0;  // the timeout of members of a group; 0: the engine alone
  std::int64_t timeoutMs = 0;    // of calls of members; 0: none
  int rounds = 0;                // of a group whose members change from one to the next (rounds.h); 0: they stay
  bool shrinks = false;          // the members of a round are what is left of the one before, and meet by that
  std::vector<ScriptedCall> calls;
  std::vector<Fault> faults;

  int world() const;
  GroupingFrom grouping() const;
  bool isFatal(const Fault& fault) const;  // calls may end with an error because of it
  std::string text() const;
};

// Of drawn scripts: with such members alone, or with members whose calls time out behind one that holds all up.
enum class Kind : std::uint8_t { Any, Members, Rounds, Chains };
Script drawn(std::uint64_t seed, Kind kind = Kind::Any);
// What text() wrote. Nothing where it is no such text.
std::optional<Script> parsed(const std::string& text);
// Scripts that are a little shorter, the boldest first.
std::vector<Script> shortened(const Script& script);

}  // namespace fairring::testing
