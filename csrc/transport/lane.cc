#include "transport/lane.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>

namespace fairring {

namespace {

// The time for which one chunk keeps a lane busy at its rate, so slow lanes get small chunks. If there is no other
// lane, longer chunks cost less: a small message waits behind one at most.
constexpr double kChunkSeconds = 2e-3;
constexpr double kLoneChunkSeconds = 8e-3;
constexpr std::uint32_t kSmallestCut = 32 << 10;
// It takes a helper some microseconds to begin, as long as it takes to send a tenth of that.
constexpr std::uint64_t kLeastHelpedBytes = 128 << 10;

bool isTransient(int code) { return code == EAGAIN || code == EINTR; }

}  // namespace

Lane::Lane(Loop& loop, std::weak_ptr<LaneOwner> owner, Reassembly& reassembly, std::uint32_t index, Stream stream)
    : loop_(loop), owner_(std::move(owner)), index_(index), stream_(std::move(stream)), reader_(reassembly) {}

Lane::~Lane() { drop(); }

void Lane::start() {
  assert(loop_.isCurrent());
  loop_.watch(stream_.socket().get(), EPOLLIN, whenReady());
  readOn();
}

Loop::Ready Lane::whenReady() {
  return [weak = weak_from_this()](std::uint32_t events) {
    if (const auto lane = weak.lock()) lane->onReady(events);
  };
}

std::uint32_t Lane::chunkBytes(bool alone) const {
  const double fitting = rate_.bytesPerSecond() * (alone ? kLoneChunkSeconds : kChunkSeconds);
  return static_cast<std::uint32_t>(std::clamp<double>(fitting, kSmallestCut, kMostChunkBytes));
}

double Lane::secondsFor(std::uint64_t bytes) const {
  return static_cast<double>(outstanding_ + bytes) / rate_.bytesPerSecond();
}

Packets Lane::packets() const {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(stream_.socket().get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {info.tcpi_segs_out, info.tcpi_total_retrans};
}

void Lane::give(SendQueue::Chunk chunk) {
  assert(loop_.isCurrent() && hasRoom());
  chunk.header.acked = confirmed_ = reader_.chunks();
  output_.frames.push_back({chunk.header, chunk.data, chunk.of});
  if (!chunk.isSmall()) {
    rate_.gave(outstanding_, loop_.now());
    outstanding_ += chunk.header.bytes;
  }
  unacknowledged_.push_back(std::move(chunk));
}

void Lane::flush() {
  if (gone_ || broken_ || withHelper_) return;
  if (isForHelper()) return blocked_ ? void() : handOver();
  stream_.flush();
  while (output_.send(stream_)) {
  }
  settle();
}

bool Lane::isForHelper() const {
  return loop_.hasHelpers() && !stream_.isSealed() && output_.bytes() >= kLeastHelpedBytes;
}

void Lane::handOver() {
  assert(!withHelper_ && !output_.frames.empty());
  withHelper_ = std::make_shared<Output>(std::exchange(output_, {}));
  helpedFrames_ = withHelper_->frames.size();
  loop_.share(
      this, 0, [this, output = withHelper_] { return output->send(stream_); },
      [this] {
        const auto self = shared_from_this();  // the owner may drop it in its calls
        takeBack();
        settle();
        const auto owner = owner_.lock();
        if (owner && !gone_ && takeAcknowledgements(*owner)) owner->onProgress();
      });
}

// What was given meanwhile stands behind what the helper has left.
void Lane::takeBack() {
  helpedFrames_ = 0;
  std::ranges::move(output_.frames, std::back_inserter(withHelper_->frames));
  output_ = std::move(*std::exchange(withHelper_, nullptr));
}

void Lane::endHelp() {
  loop_.dropWork(this);
  if (withHelper_) takeBack();
  count();
}

void Lane::count() {
  sentWhole_ += std::exchange(output_.sentWhole, 0);
  sends_ += std::exchange(output_.sends, 0);
}

// Counts what has been sent, and waits for the stream if there is more.
void Lane::settle() {
  count();
  if (output_.isBroken) {  // reading finds the end, and possibly data before it
    broken_ = true;
    output_ = {};
    ::shutdown(stream_.socket().get(), SHUT_RDWR);
    return;
  }
  const bool isBlocked = output_.isFull || stream_.hasUnsent();
  if (std::exchange(blocked_, isBlocked) == isBlocked) return;
  loop_.rewatch(stream_.socket().get(), blocked_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

std::uint64_t Lane::Output::bytes() const {
  std::uint64_t bytes = 0;
  for (const Frame& frame : frames) bytes += sizeof frame.header + frame.header.bytes;
  return bytes - offset;
}

bool Lane::Output::send(Stream& stream) {
  isFull = false;
  if (frames.empty()) return false;
  std::array<iovec, kMostPieces> pieces;
  std::size_t count = 0;
  std::size_t skip = offset;
  bool hasMessages = false;  // or is a mere acknowledgement
  for (auto frame = frames.begin(); frame != frames.end() && count + 2 <= kMostPieces; ++frame) {
    if (skip < sizeof frame->header) {
      pieces[count++] = {reinterpret_cast<std::byte*>(&frame->header) + skip, sizeof frame->header - skip};
    }
    const std::size_t ofData = skip - std::min(skip, sizeof frame->header);
    if (ofData < frame->header.bytes) {
      pieces[count++] = {const_cast<std::byte*>(frame->data) + ofData, frame->header.bytes - ofData};
    }
    hasMessages = hasMessages || frame->of;
    skip = 0;
  }
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const ssize_t bytes = stream.send(message);
  isFull = bytes < 0 && isTransient(errno);
  isBroken = bytes < 0 && !isFull;
  if (bytes < 0) return false;
  sends += hasMessages ? 1 : 0;
  sent(static_cast<std::size_t>(bytes));
  return !frames.empty();
}

void Lane::Output::sent(std::size_t bytes) {
  offset += bytes;
  while (!frames.empty() && offset >= sizeof(ChunkHeader) + frames.front().header.bytes) {
    offset -= sizeof(ChunkHeader) + frames.front().header.bytes;
    if (frames.front().of) ++sentWhole;
    frames.pop_front();
  }
}

void Lane::onReady(std::uint32_t events) {
  const auto self = shared_from_this();  // the owner may drop it in its calls
  const auto owner = owner_.lock();
  if (!owner) return;
  if ((events & EPOLLOUT) != 0) {
    output_.isFull = false;
    if (!withHelper_ && isForHelper()) settle();
    flush();
  }
  if (!gone_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(*owner);
  if (gone_) return;
  acknowledgeSoon();
  owner->onProgress();
}

void Lane::read(LaneOwner& owner) {
  std::size_t budget = kMostBytesPerTurn;
  while (budget > 0) {
    std::array<iovec, 2> room = reader_.room();
    msghdr message{};
    message.msg_iov = room.data();
    message.msg_iovlen = room.size();
    const ssize_t got = stream_.receive(message);
    if (got < 0 && isTransient(errno)) return;
    if (got < 0) return leave(owner, makeError(ErrorKind::Connection, stream_.failure("recvmsg").text()));
    if (got == 0) return leave(owner, {});
    const auto bytes = static_cast<std::size_t>(got);
    seen_ += bytes;
    budget -= std::min(budget, bytes);
    const Error error = reader_.filled(bytes);
    if (error) return owner.onFault(error);
    if (!takeAcknowledgements(owner)) return;
    if (reader_.hasEnded()) return leave(owner, {});
    if (bytes < room[0].iov_len + room[1].iov_len && !stream_.hasUnread()) return;  // that was all
  }
  readOn();
}

// Reads, in the loop's next turn, bytes that the stream has already taken from the socket.
void Lane::readOn() {
  if (stream_.hasUnread()) loop_.post([ready = whenReady()] { ready(EPOLLIN); });
}

// False if there were more than there can be.
bool Lane::takeAcknowledgements(LaneOwner& owner) {
  std::size_t count = reader_.acked() - acked_;
  // A helper may have sent more than has been counted yet.
  if (withHelper_) count = std::min(count, sentWhole_);
  if (count == 0) return true;
  if (count > sentWhole_) {
    owner.onFault(makeError(ErrorKind::Connection, count, " chunks were acknowledged and only ", sentWhole_, " sent"));
    return false;
  }
  acked_ += static_cast<std::uint32_t>(count);
  sentWhole_ -= count;
  std::uint64_t bytes = 0;
  for (; count > 0; --count) {
    const SendQueue::Chunk chunk = std::move(unacknowledged_.front());
    unacknowledged_.pop_front();
    if (!chunk.isSmall()) bytes += chunk.header.bytes;
    owner.onAcknowledged(chunk);
  }
  if (bytes > 0) rate_.acked(bytes, loop_.now());
  outstanding_ -= bytes;
  return true;
}

void Lane::acknowledgeSoon() {
  const bool urgent = reader_.takeUrgent();
  const std::uint32_t unconfirmed = reader_.chunks() - confirmed_;
  if (unconfirmed == 0) return;
  if (urgent || unconfirmed >= kMostUnconfirmed) return acknowledge();
  if (confirmation_ != 0) return;
  confirmation_ = loop_.at(loop_.now() + kMostDelay, [this] {
    confirmation_ = 0;
    if (reader_.chunks() != confirmed_) acknowledge();
  });
}

void Lane::acknowledge() {
  confirmed_ = reader_.chunks();
  // A header that is still queued will carry the acknowledgement too.
  const std::ptrdiff_t begun = output_.offset > 0 ? 1 : 0;
  if (std::ssize(output_.frames) > begun) {
    for (auto frame = output_.frames.begin() + begun; frame != output_.frames.end(); ++frame) {
      frame->header.acked = confirmed_;
    }
    return;
  }
  output_.frames.push_back({{.message = {.kind = kNoMessage}, .acked = confirmed_}, nullptr, nullptr});
  flush();
}

void Lane::sayEnd() {
  if (gone_) return;
  endHelp();
  if (output_.offset > 0) return;
  ChunkHeader header{.message = {.kind = kEnd}, .acked = reader_.chunks()};
  iovec piece{&header, sizeof header};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  [[maybe_unused]] const auto sent = stream_.send(message);
}

void Lane::drop() {
  if (std::exchange(gone_, true)) return;
  endHelp();
  loop_.cancel(confirmation_);
  loop_.unwatch(stream_.socket().get());
  stream_.close();
}

void Lane::leave(LaneOwner& owner, const Error& error) {
  endHelp();
  if (!takeAcknowledgements(owner)) return;
  drop();
  owner.onGone(index_, error);
}

}  // namespace fairring
