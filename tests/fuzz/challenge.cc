// The keyed challenge: a stranger never passes it, whatever it says in whatever pieces, and never makes us wait for
// more than a message.
#include "transport/challenge.h"

#include <algorithm>
#include <cstdlib>

using namespace fairring;

namespace {

constexpr std::size_t kLongest = 76;

void feed(Challenge& challenge, std::span<const std::byte> bytes, std::size_t piece) {
  while (!bytes.empty()) {
    if (challenge.wanted() == 0 || challenge.wanted() > kLongest) std::abort();
    const std::size_t size = std::min({bytes.size(), challenge.wanted(), piece});
    const Challenge::State state = challenge.feed(bytes.first(size));
    bytes = bytes.subspan(size);
    challenge.takeOutput();
    if (state == Challenge::State::Done) std::abort();
    if (state == Challenge::State::Refused) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Secret secret = randomSecret();
  if (size < 1) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const std::size_t piece = 1 + data[0] % kLongest;
  Challenge acceptor([](const Greeting& greeting) { return greeting.to == 0 ? std::optional(secret) : std::nullopt; });
  feed(acceptor, bytes, piece);
  Challenge connector(Greeting{.purpose = Purpose::Lane}, secret);
  feed(connector, bytes, piece);
  return 0;
}
