// The keyed challenge: a stranger never passes it, whatever it says in whatever pieces, and never makes us wait for
// more than a message.
#include "transport/hello.h"

#include <algorithm>
#include <cstdlib>

using namespace fairring;

namespace {

constexpr std::size_t kLongest = 76;

void feed(Hello& hello, std::span<const std::byte> bytes, std::size_t piece) {
  while (!bytes.empty()) {
    if (hello.wanted() == 0 || hello.wanted() > kLongest) std::abort();
    const std::size_t size = std::min({bytes.size(), hello.wanted(), piece});
    const Hello::State state = hello.feed(bytes.first(size));
    bytes = bytes.subspan(size);
    hello.takeOutput();
    if (state == Hello::State::Done) std::abort();
    if (state == Hello::State::Refused) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Secret secret = randomSecret();
  if (size < 1) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const std::size_t piece = 1 + data[0] % kLongest;
  Hello acceptor([](const Greeting& greeting) { return greeting.to == 0 ? std::optional(secret) : std::nullopt; });
  feed(acceptor, bytes, piece);
  Hello connector(Greeting{.purpose = Purpose::Lane}, secret);
  feed(connector, bytes, piece);
  return 0;
}
