// Ranks of one process, connected by an implementation of Channel and stepped by hand: each has a loop and a receiver
// that records its calls. An implementation joins one rank at a time; it finds connected stream sockets to each other
// rank in its seat, to use as lanes or to tell the other how to connect.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/loop.h"
#include "transport/transport.h"

namespace fairring {

using Bytes = std::vector<std::byte>;

struct Seat {
  int rank = 0;
  std::map<int, std::vector<Descriptor>> sockets;  // by peer
};

struct Joined {
  ChannelsByPeer channels;
  std::function<bool()> open;  // true once all of its channels are connected
};

using Join = Joined (*)(Loop& loop, MessageReceiver& receiver, Seat seat);  // called on the loop

struct Recorder final : MessageReceiver {
  struct AuthenticatedConnection {
    int peer;
    MessageHeader header;
    bool operator==(const AuthenticatedConnection&) const = default;
  };
  struct End {
    int peer;
    Error error;
  };

  std::byte* place(int peer, const MessageHeader& header) override {
    asked.push_back({peer, header});
    if (peer == refused) return nullptr;
    Bytes& bytes = at(peer, header);
    bytes.assign(header.bytes, std::byte{0xEE});
    return bytes.data();
  }
  void arrived(int peer, const MessageHeader& header) override { arrivals.push_back({peer, header}); }
  void ended(int peer, const Error& error) override { ends.push_back({peer, error}); }

  Bytes& at(int peer, const MessageHeader& header) { return memory[{peer, header.fields[0], header.fields[1]}]; }

  int refused = -1;  // the peer whose messages find no place
  std::vector<AuthenticatedConnection> asked;
  std::vector<AuthenticatedConnection> arrivals;
  std::vector<End> ends;
  std::map<std::tuple<int, std::uint64_t, std::uint64_t>, Bytes> memory;
};

// Bytes that identify their place and their message.
inline Bytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  std::uint64_t state = seed + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(state >> 56U);
  }
  return bytes;
}

inline Message dataMessage(std::uint64_t number, const Bytes& bytes) {
  return {{.kind = 1, .shortFields = {1}, .fields = {number, 64}, .bytes = bytes.size(), .lastField = ~number},
          bytes.data()};
}

inline Message grantMessage(std::uint64_t number) {
  return {{.kind = 2, .shortFields = {2}, .fields = {number}, .lastField = ~number}, nullptr};
}

class Mesh {
 public:
  static constexpr int kLanes = 3;

  struct Rank {
    Loop loop;
    Recorder receiver;
    Joined joined;
  };

  Mesh(int world, Join join) {
    std::vector<Seat> seats(static_cast<std::size_t>(world));
    for (int rank = 0; rank < world; ++rank) seats[rank].rank = rank;
    for (int low = 0; low < world; ++low) {
      for (int high = low + 1; high < world; ++high) {
        for (int lane = 0; lane < kLanes; ++lane) {
          auto [a, b] = sockets();
          seats[low].sockets[high].push_back(std::move(a));
          seats[high].sockets[low].push_back(std::move(b));
        }
      }
    }
    for (Seat& seat : seats) add(std::move(seat), join);
    opened_ = until([&] { return std::ranges::all_of(ranks_, [](const auto& rank) { return rank->joined.open(); }); });
  }
  // One rank of several processes.
  Mesh(Seat seat, Join join) {
    add(std::move(seat), join);
    opened_ = until([&] { return ranks_[0]->joined.open(); });
  }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) leave(static_cast<int>(rank));
  }

  static std::pair<Descriptor, Descriptor> sockets() {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()) != 0) {
      throw Failure(systemError("socketpair"));
    }
    return {Descriptor(pair[0]), Descriptor(pair[1])};
  }

  bool opened() const { return opened_; }
  Recorder& receiver(int rank) { return ranks_[rank]->receiver; }
  Channel& channel(int rank, int peer) { return *ranks_[rank]->joined.channels.at(peer); }
  void closeAll(int rank) {
    for (const auto& [peer, channel] : ranks_[rank]->joined.channels) channel->close();
  }

  // Runs the task in a turn of the rank's loop.
  void on(int rank, const Loop::Task& task) {
    ranks_[rank]->loop.post(task);
    ranks_[rank]->loop.runOnce(std::chrono::milliseconds(0));
  }
  void send(int from, int to, const std::vector<Message>& messages, const Channel::Released& released = [] {}) {
    on(from, [&] { channel(from, to).send(messages, released); });
  }
  void close(int rank) {
    on(rank, [&] { closeAll(rank); });
  }
  void leave(int rank) {
    on(rank, [&] { ranks_[rank]->joined = {}; });
  }
  void turn() {
    for (const auto& rank : ranks_) rank->loop.runOnce(std::chrono::milliseconds(1));
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) turn();
  }
  // False if the condition has not come true within 30 s.
  bool until(const std::function<bool()>& condition) {
    const auto deadline = Loop::Clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (Loop::Clock::now() > deadline) return false;
      turn();
    }
    return true;
  }
  bool untilArrived(int rank, std::size_t count) {
    return until([&] { return receiver(rank).arrivals.size() >= count; });
  }

 private:
  void add(Seat seat, Join join) {
    Rank& rank = *ranks_.emplace_back(std::make_unique<Rank>());
    on(static_cast<int>(ranks_.size()) - 1, [&] { rank.joined = join(rank.loop, rank.receiver, std::move(seat)); });
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  bool opened_ = false;
};

}  // namespace fairring
