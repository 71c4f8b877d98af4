#include "simulation/simulated_channels.h"

#include <cstring>

namespace fairring::simulation {

namespace {

constexpr std::uint64_t kHeaderBytes = 64;       // of a chunk
constexpr std::uint64_t kSmallBytes = 64 << 10;  // goes before the rest of larger ones
constexpr int kGarbage = 0xA5;

class SimulatedChannel final : public Channel {
 public:
  SimulatedChannel(SimulatedChannels& ofRank, int peer) : ofRank_(ofRank), peer_(peer) {}

  void send(std::span<const Message> messages, Released released) override {
    ofRank_.send(peer_, messages, std::move(released));
  }
  std::uint64_t bytesSeen() const override { return 0; }
  std::uint64_t sends() const override { return ofRank_.sends(); }
  void close() override { ofRank_.close(); }
  bool hasEnded() const override { return ofRank_.isClosed(); }

 private:
  SimulatedChannels& ofRank_;
  const int peer_;
};

}  // namespace

struct SimulatedChannels::Batch {
  int from;
  std::size_t inUse = 0;  // messages whose memory is
  Channel::Released released;
};

struct SimulatedChannels::Transit {
  int from;
  int to;
  Message message;
  std::vector<std::byte> copy;  // where the message is small
  std::shared_ptr<Batch> batch;
  std::byte* place = nullptr;
  bool placed = false;
};

ChannelsByPeer SimulatedChannels::to(const std::set<int>& peers) {
  ChannelsByPeer channels;
  for (const int peer : peers) channels[peer] = std::make_shared<SimulatedChannel>(*this, peer);
  return channels;
}

void SimulatedChannels::send(int peer, std::span<const Message> messages, Channel::Released released) {
  if (closed_) return;
  if (post_.onSend) post_.onSend(rank_, peer, messages);
  Core& core = *post_.boxes[static_cast<std::size_t>(rank_)].core;
  std::uint64_t bytes = 0;
  for (const Message& message : messages) bytes += message.header.bytes;
  core.charge(core.costs().sendSeconds + static_cast<double>(bytes) / core.costs().networkBytesPerSecond);
  ++sends_;
  messages_ += messages.size();
  post_.bytes += bytes;
  const auto batch = std::make_shared<Batch>(Batch{rank_, messages.size(), std::move(released)});
  for (const Message& message : messages) put(peer, message, batch);
}

void SimulatedChannels::put(int peer, const Message& message, std::shared_ptr<Batch> batch) {
  const auto transit = std::make_shared<Transit>(Transit{rank_, peer, message, {}, std::move(batch)});
  const bool isCopied = message.header.bytes <= post_.copiedBytes;
  if (isCopied && post_.movesBytes && message.header.bytes > 0) {
    transit->copy.assign(message.data, message.data + message.header.bytes);
    transit->message.data = transit->copy.data();
  }
  const bool isUrgent = message.header.bytes <= kSmallBytes || message.trafficClass == TrafficClass::Express;
  Post& post = post_;
  const Time now = post.boxes[static_cast<std::size_t>(rank_)].core->time();
  post.events.at(now, [&post, transit, isUrgent] {
    if (post.boxes[static_cast<std::size_t>(transit->from)].channels->isClosed()) return;
    post.network.send(transit->from, transit->to,
                      {.bytes = transit->message.header.bytes + kHeaderBytes,
                       .isUrgent = isUrgent,
                       .begun = [&post, transit] { begun(post, transit); },
                       .whole = [&post, transit] { whole(post, transit); }});
  });
  if (isCopied) release(post, std::exchange(transit->batch, nullptr), now);
}

// Its place is asked for as soon as its first bytes are there, and written to.
void SimulatedChannels::begun(Post& post, const std::shared_ptr<Transit>& transit) {
  if (!post.movesBytes || transit->message.header.bytes == 0) return;
  const Postbox& box = post.boxes[static_cast<std::size_t>(transit->to)];
  if (box.channels->isClosed()) return;
  box.loop->post([&post, transit] { receive(post, *transit); });
  box.notify();
}

void SimulatedChannels::receive(Post& post, Transit& transit) {
  const Postbox& box = post.boxes[static_cast<std::size_t>(transit.to)];
  if (box.channels->isClosed() || std::exchange(transit.placed, true)) return;
  transit.place = box.receiver->place(transit.from, transit.message.header);
  if (transit.place != nullptr && post.movesBytes) std::memset(transit.place, kGarbage, transit.message.header.bytes);
}

void SimulatedChannels::whole(Post& post, const std::shared_ptr<Transit>& transit) {
  const auto task = [&post, transit] {
    const Postbox& box = post.boxes[static_cast<std::size_t>(transit->to)];
    if (box.channels->isClosed()) return;
    const MessageHeader& header = transit->message.header;
    const bool isGone = transit->batch && post.boxes[static_cast<std::size_t>(transit->from)].channels->isClosed();
    if (isGone) return;  // its memory is another's by now, and so its last bytes never came
    box.core->charge(box.core->costs().receiveSeconds +
                     static_cast<double>(header.bytes) / box.core->costs().networkBytesPerSecond);
    if (header.bytes > 0) receive(post, *transit);
    if (header.bytes > 0 && transit->place == nullptr) return;  // refused
    if (header.bytes > 0 && post.movesBytes) std::memcpy(transit->place, transit->message.data, header.bytes);
    if (transit->batch) release(post, transit->batch, box.core->time() + ofSeconds(post.latencySeconds));
    box.receiver->arrived(transit->from, header);
  };
  const auto deliver = [&post, transit, task] {
    const Postbox& box = post.boxes[static_cast<std::size_t>(transit->to)];
    if (box.channels->isClosed()) return;
    box.loop->post(task);
    box.notify();
  };
  if (!post.delay) return deliver();
  post.events.at(post.events.now() + post.delay(), deliver);
}

// One message less whose memory is in use.
void SimulatedChannels::release(Post& post, const std::shared_ptr<Batch>& batch, Time when) {
  if (--batch->inUse > 0 || !batch->released) return;
  post.events.at(when, [&post, batch] {
    const Postbox& box = post.boxes[static_cast<std::size_t>(batch->from)];
    if (box.channels->isClosed()) return;
    box.loop->post([&post, batch] {
      if (!post.boxes[static_cast<std::size_t>(batch->from)].channels->isClosed()) batch->released();
    });
    box.notify();
  });
}

void SimulatedChannels::close() {
  if (std::exchange(closed_, true)) return;
  post_.network.drop(rank_);
}

}  // namespace fairring::simulation
