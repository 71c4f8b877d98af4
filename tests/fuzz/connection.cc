// A whole connection that has passed the challenge, over a socket and with something to send the other way: whatever
// comes, the channel goes on or ends once, and nothing else happens.
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <map>
#include <vector>

#include "transport/tcp_channel.h"

using namespace fairring;

namespace {

constexpr std::uint64_t kMostPlace = 1 << 16;

class Receiver final : public MessageReceiver {
 public:
  std::byte* place(int, const MessageHeader& header) override {
    if (header.bytes > kMostPlace) return nullptr;
    return places_.emplace_back(header.bytes).data();
  }
  void arrived(int, const MessageHeader&) override {}
  void ended(int, const Error&) override {
    if (++ends_ > 1) std::abort();
  }

 private:
  std::vector<std::vector<std::byte>> places_;
  int ends_ = 0;
};

std::array<Descriptor, 2> connected() {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()) != 0) std::abort();
  return {Descriptor(pair[0]), Descriptor(pair[1])};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Loop loop;
  static const std::vector<std::byte> payload(100 << 10);
  Receiver receiver;
  auto [here, there] = connected();
  std::shared_ptr<TcpChannel> channel;
  const auto turn = [&](const Loop::Task& task) {
    loop.post(task);
    loop.runOnce(std::chrono::milliseconds(0));
  };
  turn([&, &socket = here] {
    channel = std::make_shared<TcpChannel>(loop, 1, receiver, Relinking(), std::make_shared<SpareMemory>());
    channel->add(0, std::move(socket));
    const std::array<Message, 2> messages{Message{{.kind = 1, .fields = {1}, .bytes = 100}, payload.data()},
                                          Message{{.kind = 1, .fields = {2}, .bytes = payload.size()}, payload.data()}};
    channel->send(messages, [] {});
  });
  turn([] {});
  const std::size_t half = size / 2;
  if (::send(there.get(), data, half, MSG_NOSIGNAL) != static_cast<ssize_t>(half)) std::abort();
  turn([] {});
  [[maybe_unused]] const auto sent = ::send(there.get(), data + half, size - half, MSG_NOSIGNAL);
  turn([] {});
  turn([&] { channel.reset(); });
  return 0;
}
