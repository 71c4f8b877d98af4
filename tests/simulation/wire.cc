#include "wire.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"

namespace fairring::testing {

namespace {

using simulation::ofSeconds;
using simulation::Time;

constexpr double kLateSeconds = 3e-3;  // that a side notices, or a piece arrives, at most
constexpr int kSocketBytes = 8 << 10;  // of a socket's memory, about
constexpr std::size_t kMostDescriptors = 4;
constexpr std::size_t kGreetingBytes = 108;  // and the proof behind it (transport/challenge.h)

std::pair<Descriptor, Descriptor> pairOfSockets() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw Failure(systemError("socketpair"));
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

union Ancillary {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptors)> bytes;
};

void takeDescriptors(msghdr& message, std::vector<Descriptor>& into) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
      into.emplace_back(fd);
    }
  }
}

void putDescriptors(msghdr& message, Ancillary& ancillary, const std::vector<Descriptor>& from) {
  if (from.empty()) return;
  message.msg_control = ancillary.bytes.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int) * from.size());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const int fd = from[i].get();
    std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof fd);
  }
}

}  // namespace

Time Surroundings::someTime() {
  const double share = static_cast<double>(number(1 << 20)) / (1 << 20);
  return ofSeconds(kLateSeconds * share * share * share);
}

Wire::Wire(Surroundings& surroundings, std::array<int, 2> ranks, Kind kind) : surroundings_(surroundings), kind_(kind) {
  for (const std::size_t end : {0U, 1U}) {
    ends_[end].rank = ranks[end];
    ends_[end].window = 1 + surroundings.number(32 << 10);
  }
}

bool Wire::isOver() const {
  return isBroken_ ||
         std::ranges::all_of(ends_, [](const End& end) { return (end.isOver || end.isStranger) && end.underWay == 0; });
}

Descriptor Wire::open(std::size_t end, bool connecting) {
  auto [own, ranks] = pairOfSockets();
  ends_[end].socket = std::move(own);
  ends_[end].isConnecting = connecting;
  const std::array<std::byte, 4096> filler{};
  while (connecting && ::send(ranks.get(), filler.data(), filler.size(), MSG_NOSIGNAL) > 0) {
  }
  return std::move(ranks);
}

void Wire::connected(std::size_t end) {
  End& side = ends_[end];
  if (!std::exchange(side.isConnecting, false)) return;
  std::array<std::byte, 4096> filler;
  ssize_t got = 0;
  while ((got = ::recv(side.socket.get(), filler.data(), filler.size(), 0)) > 0) {
  }
  if (got == 0 || errno != EAGAIN) {  // closed meanwhile
    side.isOver = true;
    carry(end, {});
  }
  handOver(end);
  surroundings_.wake(side.rank);
}

void Wire::cut() {
  if (std::exchange(isBroken_, true)) return;
  for (End& end : ends_) {
    surroundings_.at(surroundings_.now() + surroundings_.someTime(), [self = shared_from_this(), &end] {
      end.socket.reset();
      self->surroundings_.wake(end.rank);
    });
  }
}

void Wire::died(int rank) {
  for (const std::size_t end : {0U, 1U}) {
    if (ends_[end].rank != rank || isBroken_) continue;
    ends_[end].window = std::numeric_limits<std::uint64_t>::max();  // its kernel sends on what it holds
    take(end);
    if (std::exchange(ends_[end].isOver, true)) continue;
    carry(end, {});
  }
}

void Wire::serve(int rank) {
  for (const std::size_t end : {0U, 1U}) {
    if (ends_[end].rank != rank || isBroken_) continue;
    handOver(end);
    take(end);
  }
}

// What this end's rank has written.
void Wire::take(std::size_t from) {
  End& end = ends_[from];
  while (!isBroken_ && !end.isConnecting && !end.isOver && end.socket && end.underWay < end.window) {
    Piece piece;
    piece.bytes.resize(1 + surroundings_.number(surroundings_.number(4) == 0 ? 64 : 16 << 10));
    iovec room{piece.bytes.data(), piece.bytes.size()};
    Ancillary ancillary{};
    msghdr message{};
    message.msg_iov = &room;
    message.msg_iovlen = 1;
    message.msg_control = ancillary.bytes.data();
    message.msg_controllen = ancillary.bytes.size();
    const ssize_t got = ::recvmsg(end.socket.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == ECONNRESET) continue;  // closed with something unread: the end follows
    if (got < 0) return;
    takeDescriptors(message, piece.descriptors);
    piece.bytes.resize(static_cast<std::size_t>(got));
    end.isOver = got == 0;
    end.underWay += piece.bytes.size();
    end.written += piece.bytes.size();
    if (from == 0 && greeting->size() < kGreetingBytes)
      greeting->insert(greeting->end(), piece.bytes.begin(), piece.bytes.end());
    carry(from, std::move(piece));
  }
}

void Wire::speak(std::size_t end, std::span<const std::byte> bytes, bool closes) {
  End& side = ends_[end];
  side.isStranger = true;
  while (!bytes.empty()) {
    const std::size_t size = 1 + surroundings_.number(bytes.size());
    Piece piece;
    piece.bytes.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    bytes = bytes.subspan(size);
    side.underWay += size;
    carry(end, std::move(piece));
  }
  side.isOver = closes;
  if (closes) carry(end, {});
}

void Wire::carry(std::size_t from, Piece piece) {
  const auto shared = std::make_shared<Piece>(std::move(piece));
  cross(from, shared->bytes.size(), [self = shared_from_this(), from, shared] {
    End& to = self->ends_[1 - from];
    self->ends_[from].underWay -= shared->bytes.size();
    to.isOverThere = to.isOverThere || shared->bytes.empty();
    if (!shared->bytes.empty()) to.here.push_back(std::move(*shared));
    self->handOver(1 - from);
    self->take(from);
    self->surroundings_.wake(self->ends_[from].rank);
  });
}

void Wire::cross(std::size_t from, std::uint64_t bytes, std::function<void()> there) {
  const auto crossed = [self = shared_from_this(), from, there = std::move(there)] {
    Time& last = self->ends_[from].lastThere;
    last = std::max(last, self->surroundings_.now() + self->surroundings_.someTime());
    self->surroundings_.at(last, [self, there] {
      if (!self->isBroken_) there();
    });
  };
  // A turn is later than the event that it began with, so what is taken after it could leave before what it wrote.
  Time& leaves = ends_[from].lastLeft;
  leaves = std::max(leaves, surroundings_.timeOf(ends_[from].rank));
  if (isLocal()) return surroundings_.at(leaves, crossed);
  surroundings_.at(leaves, [self = shared_from_this(), from, bytes, crossed] {
    if (self->isBroken_) return;
    self->surroundings_.network.send(self->ends_[from].rank, self->ends_[1 - from].rank,
                                     {.bytes = std::max<std::uint64_t>(bytes, 1), .begun = [] {}, .whole = crossed});
  });
}

// What has come for this end's rank, as far as its socket has room. Descriptors go with a piece's last byte: a piece
// may begin with bytes that were written before theirs, and whoever reads those need not expect any.
void Wire::handOver(std::size_t to) {
  End& end = ends_[to];
  if (!end.socket || end.isConnecting || (end.here.empty() && !end.isOverThere)) return;
  while (!end.here.empty()) {
    Piece& piece = end.here.front();
    const bool isLast = piece.descriptors.empty() || piece.bytes.size() == 1;
    iovec bytes{piece.bytes.data(), isLast ? piece.bytes.size() : piece.bytes.size() - 1};
    Ancillary ancillary{};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (isLast) putDescriptors(message, ancillary, piece.descriptors);
    const ssize_t sent = ::sendmsg(end.socket.get(), &message, MSG_NOSIGNAL);
    if (sent <= 0) break;
    end.handedOver += static_cast<std::uint64_t>(sent);
    if (isLast) piece.descriptors.clear();
    piece.bytes.erase(piece.bytes.begin(), piece.bytes.begin() + sent);
    if (piece.bytes.empty()) end.here.pop_front();
  }
  if (end.here.empty() && std::exchange(end.isOverThere, false)) ::shutdown(end.socket.get(), SHUT_WR);
  surroundings_.wake(end.rank);
}

}  // namespace fairring::testing
