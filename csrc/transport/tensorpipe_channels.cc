#include "transport/tensorpipe_channels.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <deque>
#include <map>
#include <optional>

#include "transport/tensorpipe_connector.h"
#include "transport/tensorpipe_context.h"

namespace fairring {

static_assert(std::endian::native == std::endian::little, "headers travel as they lie in memory, little endian");

namespace {

const std::byte kFiller{0};  // the payload of a batch whose messages have no bytes

// Empty if the peer closed in good order. uv reports that by an error of its own, whose code only its text shows.
Error errorOf(int peer, const tensorpipe::Error& error) {
  const auto uv = error.castToType<tensorpipe::transport::uv::UVError>();
  if (error.isOfType<tensorpipe::EOFError>() || (uv && uv->what().starts_with("EOF:"))) return {};
  return makeError(ErrorKind::Connection, "TensorPipe's pipe to rank ", peer, " broke: ", error.what());
}

// The headers of a batch; none if it is not one of ours.
std::vector<MessageHeader> headersOf(const tensorpipe::Descriptor& batch) {
  const std::string& bytes = batch.metadata;
  if (bytes.size() % sizeof(MessageHeader) != 0 || !batch.tensors.empty()) return {};
  std::vector<MessageHeader> headers(bytes.size() / sizeof(MessageHeader));
  std::memcpy(headers.data(), bytes.data(), bytes.size());
  std::vector<std::size_t> lengths;
  for (const MessageHeader& header : headers) {
    if (!isKnown(header.kind)) return {};
    if (header.bytes > 0) lengths.push_back(header.bytes);
  }
  if (lengths.empty()) lengths.push_back(sizeof kFiller);
  const auto same = [](std::size_t length, const auto& payload) { return length == payload.length; };
  if (!std::ranges::equal(lengths, batch.payloads, same)) return {};
  return headers;
}

class TensorPipeChannels final : public ContactChannels {
 public:
  TensorPipeChannels(Loop& loop, const ContactChannelsSettings& settings, MessageReceiver& receiver);
  ~TensorPipeChannels() override { close(); }

  std::string contact() const override { return connector_.contact(); }
  void connect(int peer, const std::string& contact) override { connector_.connect(peer, contact); }
  void whenOpen(std::function<void()> open) override;

  void send(int peer, std::span<const Message> messages, Released released) override;
  std::uint64_t bytesSeen(int peer) const override;
  std::uint64_t sends(int peer) const override;
  void close() override;

 private:
  using Headers = std::vector<MessageHeader>;
  struct Lane {
    TensorPipe pipe;
    std::deque<Released> unreleased;  // of the batches on their way out, oldest first
    std::uint64_t seen = 0;
  };

  void onLinked(int peer, const TensorPipe& pipe);
  void tellOpen();
  void awaitBatch(int peer);
  void onBatch(int peer, const tensorpipe::Error& error, const tensorpipe::Descriptor& batch);
  std::optional<tensorpipe::Allocation> placesFor(int peer, const Headers& headers);
  void onRead(int peer, const Headers& headers, const tensorpipe::Error& error);
  void onWritten(int peer, const tensorpipe::Error& error);
  void end(int peer, const Error& error);

  MessageReceiver& receiver_;
  TensorPipeContext context_;
  TensorPipeConnector connector_;
  std::function<void()> whenOpen_;
  std::map<int, Lane> lanes_;           // of the open pipes
  std::map<int, std::uint64_t> sends_;  // by peer, over ended pipes too
  std::byte filler_{};                  // where the peers' fillers end up
};

TensorPipeChannels::TensorPipeChannels(Loop& loop, const ContactChannelsSettings& settings, MessageReceiver& receiver)
    : receiver_(receiver),
      context_(loop, settings.transport, static_cast<int>(settings.peers.size())),
      connector_(context_, settings,
                 {.linked = [this](int peer, const TensorPipe& pipe) { onLinked(peer, pipe); },
                  .failed = [this](int peer, const Error& error) { receiver_.ended(peer, error); }}) {}

void TensorPipeChannels::onLinked(int peer, const TensorPipe& pipe) {
  lanes_[peer].pipe = pipe;
  awaitBatch(peer);
  tellOpen();
}

void TensorPipeChannels::whenOpen(std::function<void()> open) {
  assert(context_.loop().isCurrent());
  whenOpen_ = std::move(open);
  context_.loop().post([this, stillOpen = context_.isOpen()] {
    if (*stillOpen) tellOpen();
  });
}

void TensorPipeChannels::tellOpen() {
  if (connector_.complete() && whenOpen_) std::exchange(whenOpen_, nullptr)();
}

void TensorPipeChannels::send(int peer, std::span<const Message> messages, Released released) {
  assert(context_.loop().isCurrent());
  const auto lane = lanes_.find(peer);
  if (lane == lanes_.end() || messages.empty()) return;
  tensorpipe::Message batch;
  batch.metadata.reserve(messages.size() * sizeof(MessageHeader));
  for (const Message& message : messages) {
    batch.metadata.append(reinterpret_cast<const char*>(&message.header), sizeof message.header);
    if (message.header.bytes > 0)
      batch.payloads.push_back({const_cast<std::byte*>(message.data), message.header.bytes, ""});
  }
  // TensorPipe calls a batch written when its payloads are, so a batch without any would count as written too early.
  if (batch.payloads.empty()) batch.payloads.push_back({const_cast<std::byte*>(&kFiller), sizeof kFiller, ""});
  ++sends_[peer];
  lane->second.unreleased.push_back(std::move(released));
  lane->second.pipe->write(std::move(batch),
                           context_.onLoop([this, peer](const auto& error) { onWritten(peer, error); }));
}

void TensorPipeChannels::onWritten(int peer, const tensorpipe::Error& error) {
  const auto lane = lanes_.find(peer);
  if (lane == lanes_.end()) return;
  if (error) return end(peer, errorOf(peer, error));
  const Released released = std::move(lane->second.unreleased.front());
  lane->second.unreleased.pop_front();
  if (released) released();
}

void TensorPipeChannels::awaitBatch(int peer) {
  lanes_.at(peer).pipe->readDescriptor(
      context_.onLoop([this, peer](const auto& error, const auto& batch) { onBatch(peer, error, batch); }));
}

void TensorPipeChannels::onBatch(int peer, const tensorpipe::Error& error, const tensorpipe::Descriptor& batch) {
  const auto lane = lanes_.find(peer);
  if (lane == lanes_.end()) return;
  if (error) return end(peer, errorOf(peer, error));
  const Headers headers = headersOf(batch);
  if (headers.empty()) {
    return end(peer, makeError(ErrorKind::Connection, "a message of ", batch.metadata.size(), " bytes and ",
                               batch.payloads.size(), " payloads from rank ", peer, " is not of this version"));
  }
  lane->second.seen += batch.metadata.size();
  auto places = placesFor(peer, headers);
  if (!places) return;
  lane->second.pipe->read(std::move(*places), context_.onLoop([this, peer, headers](const auto& failure) {
    onRead(peer, headers, failure);
  }));
  awaitBatch(peer);
  const auto open = context_.isOpen();
  for (const MessageHeader& header : headers) {
    if (*open && header.bytes == 0) receiver_.arrived(peer, header);
  }
}

// Nothing if the pipe has ended meanwhile.
std::optional<tensorpipe::Allocation> TensorPipeChannels::placesFor(int peer, const Headers& headers) {
  const auto open = context_.isOpen();
  tensorpipe::Allocation places;
  for (const MessageHeader& header : headers) {
    if (header.bytes == 0) continue;
    std::byte* const place = receiver_.place(peer, header);
    if (!*open) return std::nullopt;
    if (place == nullptr) {
      end(peer, makeError(ErrorKind::Connection, "refused a part of ", header.bytes, " bytes from rank ", peer));
      return std::nullopt;
    }
    places.payloads.push_back({place});
  }
  if (places.payloads.empty()) places.payloads.push_back({&filler_});
  return places;
}

void TensorPipeChannels::onRead(int peer, const Headers& headers, const tensorpipe::Error& error) {
  const auto lane = lanes_.find(peer);
  if (lane == lanes_.end()) return;
  if (error) return end(peer, errorOf(peer, error));
  const auto open = context_.isOpen();
  for (const MessageHeader& header : headers) {
    if (!*open || header.bytes == 0) continue;
    lane->second.seen += header.bytes;
    receiver_.arrived(peer, header);
  }
}

void TensorPipeChannels::end(int peer, const Error& error) {
  lanes_.erase(peer);
  receiver_.ended(peer, error);
}

std::uint64_t TensorPipeChannels::bytesSeen(int peer) const {
  const auto lane = lanes_.find(peer);
  return lane == lanes_.end() ? 0 : lane->second.seen;
}

std::uint64_t TensorPipeChannels::sends(int peer) const {
  const auto found = sends_.find(peer);
  return found == sends_.end() ? 0 : found->second;
}

void TensorPipeChannels::close() {
  context_.close();
  lanes_.clear();
}

}  // namespace

std::unique_ptr<ContactChannels> makeTensorPipeChannels(Loop& loop, const ContactChannelsSettings& settings,
                                                        MessageReceiver& receiver) {
  return std::make_unique<TensorPipeChannels>(loop, settings, receiver);
}

}  // namespace fairring
