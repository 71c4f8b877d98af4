// The delegated calls under way: a stock backend carries them out. They end when it says so, or with the group's first
// error, whichever comes first: a stock backend may wait for a dead rank much longer than we do. On the loop only.
#pragma once

#include <cstdint>
#include <map>

#include "engine/call.h"
#include "group/deadlines.h"

namespace fairring {

class DelegatedCalls {
 public:
  DelegatedCalls(Loop& loop, Deadlines::Expired expired) : deadlines_(loop, std::move(expired)) {}

  void begin(std::uint64_t ticket, std::uint64_t number, DelegatedCall call);  // number: in the call log, or 0
  void end(std::uint64_t ticket);                                              // nothing where it has failed
  void fail(const Error& error);
  void close() { deadlines_.close(); }
  const DelegatedCall* anyCompared() const;  // under way; null where there is none

 private:
  Deadlines deadlines_;
  std::map<std::uint64_t, DelegatedCall> calls_;
};

}  // namespace fairring
