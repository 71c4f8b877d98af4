// The calls under way that a stock backend carries out. They end when it says so, or with the group's first error,
// whichever comes first: a stock backend may wait for a dead rank much longer than we do. On the loop only.
#pragma once

#include <cstdint>
#include <map>

#include "engine/call.h"
#include "group/deadlines.h"

namespace fairring {

class OutsideCalls {
 public:
  OutsideCalls(Loop& loop, Deadlines::Expired expired) : deadlines_(loop, std::move(expired)) {}

  void begin(std::uint64_t ticket, std::uint64_t number, OutsideCall call);  // number: in the journal, or 0
  void end(std::uint64_t ticket);                                            // nothing where it has failed
  void fail(const Error& error);
  void close() { deadlines_.close(); }
  const OutsideCall* anyCompared() const;  // under way; null where there is none

 private:
  Deadlines deadlines_;
  std::map<std::uint64_t, OutsideCall> calls_;
};

}  // namespace fairring
