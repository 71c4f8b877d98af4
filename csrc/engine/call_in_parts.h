// A call that is made of others: three parts, each of which is as large as the one before has told. They take their
// places among all calls when the call is made, the same on all ranks. The first is sized then; the others are bulk,
// and behind them all of bulk waits for the first, which waits for no bulk but what came before it. If the first has
// told all, the second gives up its place, on all ranks.
// The pipeline asks for each part once, in order. Owner of the loop's progress only, but for the constructor.
#pragma once

#include <cstdint>
#include <optional>

#include "base/error.h"
#include "engine/slicing.h"

namespace fairring {

class CallInParts {
 public:
  virtual ~CallInParts() = default;

  // An upper bound of the bytes that this rank carries, for choosing the thread that does. Any thread, before the call
  // is made.
  virtual std::uint64_t mostBytes() const = 0;
  virtual CallPart first(Slicing& slicing) = 0;
  // Nothing if it is not needed.
  virtual std::optional<CallPart> second(Slicing& slicing) = 0;
  // The part that brings the result. refused: this rank's own refusal, which the part may add if there is none.
  virtual CallPart last(Slicing& slicing, Error& refused) = 0;
};

}  // namespace fairring
