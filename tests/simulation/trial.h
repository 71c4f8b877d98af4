// A script played by whole ranks in virtual time, with what must hold after every event and at the end:
//   every call of every rank ends, with the right result or with a typed error, and with errors only where something
//   fatal was done to it; a world where nothing more can happen while a call is open hangs;
//   after a call has ended nobody reads or writes its tensors: they are filled with something else at once;
//   the ranks have the same bits;
//   nobody has more on its way to a peer that has not asked for it than the credit; nobody sends where no connection
//   is; at the end no staging is taken, no grant, message, request or held message is left.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "script.h"

namespace fairring::testing {

struct Verdict {
  std::string broken;      // what did not hold; empty: all did
  std::uint64_t bits = 0;  // of all results
  std::uint64_t events = 0;
  double seconds = 0;   // virtual ones
  bool failed = false;  // some rank that has not died ended with an error
  std::vector<Fault> struck;
  std::uint64_t joins = 0;  // of processes, where a group's members change
  std::uint64_t steps = 0;  // that count in the end, there

  explicit operator bool() const { return broken.empty(); }
};

Verdict play(const Script& script);

// As short a script that fails in the same way as some plays find.
Script shrunk(Script script, const std::function<Verdict(const Script&)>& player = play, int mostPlays = 300);

}  // namespace fairring::testing
