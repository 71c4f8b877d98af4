// Fuzzes the bytes that a peer which has passed the challenge sends over two lanes. For any bytes, nothing is written
// outside of the place that the receiver gave for a message, or after it was told that the message is there, and no
// message comes twice. The input is records: one byte for lane and length, then that many bytes of that lane.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "transport/frame_reader.h"

using namespace fairring;

namespace {

constexpr std::uint64_t kMostPlace = 1 << 20;

// Gives each message memory of exactly its size, and takes it away when it has come: the sanitizer sees what is written
// to neither.
class Receiver final : public MessageReceiver {
 public:
  std::byte* place(int, const MessageHeader& header) override {
    if (header.kind != 1 || header.bytes > kMostPlace) return nullptr;
    return places_.emplace(header.fields[0], header.bytes)->second.data();
  }
  void arrived(int, const MessageHeader& header) override {
    if (header.bytes == 0) return;
    const auto found = std::ranges::find_if(places_, [&](const auto& place) {
      return place.first == header.fields[0] && place.second.size() == header.bytes;
    });
    if (found == places_.end()) std::abort();
    places_.erase(found);
  }
  void ended(int, const Error&) override {}

 private:
  std::multimap<std::uint64_t, std::vector<std::byte>> places_;
};

// False when the lane takes no more.
bool feed(FrameReader& reader, std::span<const std::uint8_t> bytes) {
  while (!bytes.empty() && !reader.hasEnded()) {
    std::size_t filled = 0;
    for (const iovec& room : reader.room()) {
      const std::size_t size = std::min(room.iov_len, bytes.size());
      if (size > 0) std::memcpy(room.iov_base, bytes.data(), size);
      bytes = bytes.subspan(size);
      filled += size;
    }
    if (filled == 0) std::abort();
    if (reader.filled(filled)) return false;
  }
  return !reader.hasEnded();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Receiver receiver;
  Reassembly reassembly(1, receiver);
  std::array lanes = {std::make_unique<FrameReader>(reassembly), std::make_unique<FrameReader>(reassembly)};
  std::span<const std::uint8_t> input(data, size);
  while (!input.empty()) {
    const std::size_t lane = input[0] & 1;
    const std::size_t length = std::min<std::size_t>(input[0] >> 1 << 2, input.size() - 1);
    if (!feed(*lanes[lane], input.subspan(1, length))) lanes[lane] = std::make_unique<FrameReader>(reassembly);
    input = input.subspan(1 + length);
  }
  return 0;
}
