#include "group/delegated_calls.h"

#include <algorithm>
#include <utility>

namespace fairring {

void DelegatedCalls::begin(std::uint64_t ticket, std::uint64_t number, DelegatedCall call) {
  deadlines_.begin(ticket, {number, call.signature.text, call.timeout});
  calls_.emplace(ticket, std::move(call));
}

void DelegatedCalls::end(std::uint64_t ticket) {
  deadlines_.end(ticket);
  calls_.erase(ticket);
}

const DelegatedCall* DelegatedCalls::anyCompared() const {
  const auto found = std::ranges::find_if(calls_, [](const auto& entry) { return entry.second.compared; });
  return found == calls_.end() ? nullptr : &found->second;
}

void DelegatedCalls::fail(const Error& error) {
  for (const auto& [ticket, call] : std::exchange(calls_, {})) {
    deadlines_.end(ticket);
    call.failed(error);
  }
}

}  // namespace fairring
