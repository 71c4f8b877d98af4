#include "transport/tensorpipe_channel.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
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
    if (header.bytes > 0) lengths.push_back(header.bytes);
  }
  if (lengths.empty()) lengths.push_back(sizeof kFiller);
  const auto same = [](std::size_t length, const auto& payload) { return length == payload.length; };
  if (!std::ranges::equal(lengths, batch.payloads, same)) return {};
  return headers;
}

// The part that the channels to one set of peers share. The first of them to be closed closes it.
struct TensorPipeShared {
  TensorPipeShared(Loop& loop, const std::string& transport, const ChannelSettings& settings,
                   TensorPipeConnector::Events events)
      : context(loop, transport), connector(context, settings, std::move(events)) {}

  TensorPipeContext context;
  TensorPipeConnector connector;
};

class TensorPipeChannel final : public Channel {
 public:
  TensorPipeChannel(std::shared_ptr<TensorPipeShared> shared, int rank, int peer, MessageReceiver& receiver)
      : shared_(std::move(shared)), rank_(rank), peer_(peer), receiver_(receiver) {}
  TensorPipeChannel(const TensorPipeChannel&) = delete;
  TensorPipeChannel& operator=(const TensorPipeChannel&) = delete;
  ~TensorPipeChannel() override { close(); }

  void send(std::span<const Message> messages, Released released) override;
  std::uint64_t bytesSeen() const override { return seen_; }
  std::uint64_t sends() const override { return sends_; }
  void close() override;
  bool hasEnded() const override { return ended_ || !*context().isOpen(); }
  std::string contact() const override { return rank_ < peer_ ? shared_->connector.contact() : ""; }
  std::string connect(const std::string& contact) override {
    shared_->connector.connect(peer_, contact);
    return {};
  }
  bool isOpen() const override { return wasLinked_; }

  void onLinked(const TensorPipe& pipe);
  void end(const Error& error);

 private:
  using Headers = std::vector<MessageHeader>;

  TensorPipeContext& context() const { return shared_->context; }
  void awaitBatch();
  void onBatch(const tensorpipe::Error& error, const tensorpipe::Descriptor& batch);
  std::optional<tensorpipe::Allocation> placesFor(const Headers& headers);
  void onRead(const Headers& headers, const tensorpipe::Error& error);
  void onWritten(const tensorpipe::Error& error);

  const std::shared_ptr<TensorPipeShared> shared_;
  const int rank_;
  const int peer_;
  MessageReceiver& receiver_;
  TensorPipe pipe_;                  // while it is open
  std::deque<Released> unreleased_;  // of the batches on their way out, oldest first
  std::uint64_t seen_ = 0;
  std::uint64_t sends_ = 0;
  bool wasLinked_ = false;
  bool ended_ = false;
  std::byte filler_{};  // where the peer's fillers end up
};

void TensorPipeChannel::onLinked(const TensorPipe& pipe) {
  pipe_ = pipe;
  wasLinked_ = true;
  awaitBatch();
}

void TensorPipeChannel::send(std::span<const Message> messages, Released released) {
  assert(context().loop().isCurrent());
  if (!pipe_ || messages.empty()) return;
  tensorpipe::Message batch;
  batch.metadata.reserve(messages.size() * sizeof(MessageHeader));
  for (const Message& message : messages) {
    batch.metadata.append(reinterpret_cast<const char*>(&message.header), sizeof message.header);
    if (message.header.bytes > 0)
      batch.payloads.push_back({const_cast<std::byte*>(message.data), message.header.bytes, ""});
  }
  // TensorPipe calls a batch written when its payloads are, so a batch without any would count as written too early.
  if (batch.payloads.empty()) batch.payloads.push_back({const_cast<std::byte*>(&kFiller), sizeof kFiller, ""});
  ++sends_;
  unreleased_.push_back(std::move(released));
  pipe_->write(std::move(batch), context().onLoop([this](const auto& error) { onWritten(error); }));
}

void TensorPipeChannel::onWritten(const tensorpipe::Error& error) {
  if (!pipe_) return;
  if (error) return end(errorOf(peer_, error));
  const Released released = std::move(unreleased_.front());
  unreleased_.pop_front();
  if (released) released();
}

void TensorPipeChannel::awaitBatch() {
  pipe_->readDescriptor(context().onLoop([this](const auto& error, const auto& batch) { onBatch(error, batch); }));
}

void TensorPipeChannel::onBatch(const tensorpipe::Error& error, const tensorpipe::Descriptor& batch) {
  if (!pipe_) return;
  if (error) return end(errorOf(peer_, error));
  const Headers headers = headersOf(batch);
  if (headers.empty()) {
    return end(makeError(ErrorKind::Connection, "a message of ", batch.metadata.size(), " bytes and ",
                         batch.payloads.size(), " payloads from rank ", peer_, " is not of this version"));
  }
  seen_ += batch.metadata.size();
  auto places = placesFor(headers);
  if (!places) return;
  pipe_->read(std::move(*places), context().onLoop([this, headers](const auto& failure) { onRead(headers, failure); }));
  awaitBatch();
  for (const MessageHeader& header : headers) {
    if (header.bytes == 0) receiver_.arrived(peer_, header);
  }
}

// Nothing if the receiver has refused one: the pipe has ended.
std::optional<tensorpipe::Allocation> TensorPipeChannel::placesFor(const Headers& headers) {
  tensorpipe::Allocation places;
  for (const MessageHeader& header : headers) {
    if (header.bytes == 0) continue;
    std::byte* const place = receiver_.place(peer_, header);
    if (place == nullptr) {
      end(makeError(ErrorKind::Connection, "refused a part of ", header.bytes, " bytes from rank ", peer_));
      return std::nullopt;
    }
    places.payloads.push_back({place});
  }
  if (places.payloads.empty()) places.payloads.push_back({&filler_});
  return places;
}

void TensorPipeChannel::onRead(const Headers& headers, const tensorpipe::Error& error) {
  if (!pipe_) return;
  if (error) return end(errorOf(peer_, error));
  for (const MessageHeader& header : headers) {
    if (header.bytes == 0) continue;
    seen_ += header.bytes;
    receiver_.arrived(peer_, header);
  }
}

void TensorPipeChannel::end(const Error& error) {
  pipe_.reset();
  unreleased_.clear();
  ended_ = true;
  receiver_.ended(peer_, error);
}

void TensorPipeChannel::close() {
  context().close();
  pipe_.reset();
  unreleased_.clear();
}

ChannelsByPeer makeTensorPipeChannels(const std::string& transport, Loop& loop, const ChannelSettings& settings,
                                      MessageReceiver& receiver) {
  // Neither event comes before the channels are there, nor after one of them has closed the context.
  const auto made = std::make_shared<std::map<int, TensorPipeChannel*>>();
  const auto shared = std::make_shared<TensorPipeShared>(
      loop, transport, settings,
      TensorPipeConnector::Events{.linked =
                                      [made, opened = settings.opened](int peer, const TensorPipe& pipe) {
                                        made->at(peer)->onLinked(pipe);
                                        if (opened) opened();
                                      },
                                  .failed = [made](int peer, const Error& error) { made->at(peer)->end(error); }});
  ChannelsByPeer channels;
  for (const int peer : settings.peers) {
    auto channel = std::make_shared<TensorPipeChannel>(shared, settings.rank, peer, receiver);
    (*made)[peer] = channel.get();
    channels[peer] = std::move(channel);
  }
  return channels;
}

}  // namespace

Transport tensorPipeTransport(const std::string& name) {
  return {.name = name,
          .make = std::bind_front(makeTensorPipeChannels, name),
          .isRdma = name == "ibv",
          .locksLater = name == "ibv"};
}

}  // namespace fairring
