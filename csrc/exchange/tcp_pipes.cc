#include "exchange/tcp_pipes.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <deque>

namespace fairring {

static_assert(std::endian::native == std::endian::little, "headers travel as they lie in memory, little endian");

namespace {

constexpr int kMaxPieces = 64;                     // of one sendmsg
constexpr std::size_t kMaxBytesPerTurn = 1 << 20;  // read from one peer before the others get their turn

struct Outgoing {
  Part part;
  std::size_t sent = 0;      // of header and data together
  Pipes::Released released;  // on a message's last part

  std::size_t total() const { return sizeof part.header + part.header.bytes; }
};

Error broken(int peer, const char* call) {
  return makeError(ErrorKind::Connection, "connection with rank ", peer, ": ", systemError(call).text());
}

bool isTransient(int code) { return code == EAGAIN || code == EINTR; }

}  // namespace

struct TcpPipes::Lane {
  int peer;
  Descriptor socket;
  bool ended = false;
  std::deque<Outgoing> output;
  std::uint64_t seen = 0;
  // The part that is coming in. What was read of the next header stands in `header` already.
  PartHeader header;
  std::size_t headerBytes = 0;
  std::byte* place = nullptr;  // of what is still missing, where a part's data is coming in
  std::uint64_t missing = 0;
  PartHeader nextHeader;
};

TcpPipes::TcpPipes(Loop& loop, PipeReceiver& receiver) : loop_(loop), receiver_(receiver) {}

TcpPipes::~TcpPipes() { close(); }

void TcpPipes::add(int peer, Descriptor socket) {
  assert(loop_.isCurrent());
  auto lane = std::make_shared<Lane>();
  lane->peer = peer;
  lane->socket = std::move(socket);
  lanes_[peer] = lane;
  loop_.watch(lane->socket.get(), EPOLLIN, [this, lane](std::uint32_t events) { onReady(lane, events); });
}

void TcpPipes::send(int peer, std::span<const Part> parts, Released released) {
  assert(loop_.isCurrent());
  const auto found = lanes_.find(peer);
  if (found == lanes_.end() || parts.empty()) return;
  Lane& lane = *found->second;
  const bool idle = lane.output.empty();
  for (const Part& part : parts) lane.output.push_back({part, 0, nullptr});
  lane.output.back().released = std::move(released);
  // Sent at the end of this turn at the latest: what else this turn sends to the peer shares the message.
  if (idle) loop_.rewatch(lane.socket.get(), EPOLLIN | EPOLLOUT);
}

std::uint64_t TcpPipes::bytesSeen(int peer) const {
  const auto found = lanes_.find(peer);
  return found == lanes_.end() ? 0 : found->second->seen;
}

bool TcpPipes::drained() const {
  for (const auto& [peer, lane] : lanes_) {
    if (!lane->output.empty()) return false;
  }
  return true;
}

void TcpPipes::close() {
  for (auto& [peer, lane] : lanes_) {
    lane->ended = true;
    loop_.unwatch(lane->socket.get());
  }
  lanes_.clear();
}

void TcpPipes::onReady(const std::shared_ptr<Lane>& lane, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) write(*lane);
  if (!lane->ended && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(*lane);
}

void TcpPipes::read(Lane& lane) {
  std::size_t budget = kMaxBytesPerTurn;
  while (budget > 0 && !lane.ended) {
    // The rest of the data that is coming in, and with it, saving a call, the header behind it.
    auto* header = reinterpret_cast<std::byte*>(&lane.nextHeader) + lane.headerBytes;
    const std::array<iovec, 2> into{iovec{lane.place, static_cast<std::size_t>(lane.missing)},
                                    iovec{header, sizeof lane.nextHeader - lane.headerBytes}};
    const ssize_t got = ::readv(lane.socket.get(), into.data(), into.size());
    if (got < 0 && isTransient(errno)) return;
    if (got < 0) return end(lane, broken(lane.peer, "readv"));
    if (got == 0) return end(lane, {});
    auto bytes = static_cast<std::uint64_t>(got);
    lane.seen += bytes;
    budget -= std::min<std::size_t>(budget, bytes);
    const std::uint64_t data = std::min(bytes, lane.missing);
    lane.place += data;
    lane.missing -= data;
    lane.headerBytes += bytes - data;
    if (data > 0 && lane.missing == 0) receiver_.arrived(lane.peer, lane.header);
    if (!lane.ended && lane.headerBytes == sizeof lane.nextHeader && !onHeader(lane)) return;
  }
}

// A whole header has come. False when the lane ended.
bool TcpPipes::onHeader(Lane& lane) {
  lane.header = lane.nextHeader;
  lane.headerBytes = 0;
  lane.place = nullptr;
  const bool known = isKnown(lane.header.kind);
  if (!known || lane.header.reserved != 0) {
    end(lane, makeError(ErrorKind::Connection, "a part's header from rank ", lane.peer, " is not of this version"));
    return false;
  }
  if (lane.header.bytes == 0) {
    receiver_.arrived(lane.peer, lane.header);
    return !lane.ended;
  }
  lane.place = receiver_.place(lane.peer, lane.header);
  if (lane.ended) return false;
  if (lane.place == nullptr) {
    end(lane,
        makeError(ErrorKind::Connection, "refused a part of ", lane.header.bytes, " bytes from rank ", lane.peer));
    return false;
  }
  lane.missing = lane.header.bytes;
  return true;
}

void TcpPipes::write(Lane& lane) {
  while (!lane.output.empty()) {
    std::array<iovec, kMaxPieces> pieces;
    int count = 0;
    for (auto out = lane.output.begin(); out != lane.output.end() && count + 2 <= kMaxPieces; ++out) {
      const std::size_t ofHeader = std::min(out->sent, sizeof out->part.header);
      const std::size_t ofData = out->sent - ofHeader;
      if (ofHeader < sizeof out->part.header) {
        pieces[count++] = {reinterpret_cast<std::byte*>(&out->part.header) + ofHeader,
                           sizeof out->part.header - ofHeader};
      }
      if (ofData < out->part.header.bytes) {
        pieces[count++] = {const_cast<std::byte*>(out->part.data) + ofData, out->part.header.bytes - ofData};
      }
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t sent = ::sendmsg(lane.socket.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && isTransient(errno)) return;
    if (sent < 0) return end(lane, broken(lane.peer, "sendmsg"));
    auto bytes = static_cast<std::size_t>(sent);
    while (bytes > 0) {
      Outgoing& out = lane.output.front();
      const std::size_t of = std::min(bytes, out.total() - out.sent);
      out.sent += of;
      bytes -= of;
      if (out.sent < out.total()) break;
      const Released released = std::move(out.released);
      lane.output.pop_front();
      if (released) released();
      if (lane.ended) return;
    }
  }
  loop_.rewatch(lane.socket.get(), EPOLLIN);
}

void TcpPipes::end(Lane& lane, const Error& error) {
  const int peer = lane.peer;
  lane.ended = true;
  loop_.unwatch(lane.socket.get());
  const auto keepAlive = lanes_.extract(peer);
  receiver_.ended(peer, error);
}

}  // namespace fairring
