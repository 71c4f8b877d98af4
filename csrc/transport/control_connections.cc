#include "transport/control_connections.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <deque>

namespace fairring {

namespace {

static_assert(std::endian::native == std::endian::little, "headers travel as they lie in memory, little endian");
struct ControlHeader {
  ControlType type;
  std::array<std::byte, 3> zero{};
  std::uint32_t length;
};
constexpr std::size_t kHeaderBytes = sizeof(ControlHeader);
static_assert(kHeaderBytes == 8);
constexpr std::size_t kMaxDescriptors = 4;
constexpr std::chrono::milliseconds kLongestInterval{1'000};

struct Outgoing {
  std::string bytes;
  std::vector<int> descriptors;  // beside the first byte
  std::size_t sent = 0;
};

std::string frame(ControlType type, const std::string& text) {
  const ControlHeader header{.type = type, .length = static_cast<std::uint32_t>(text.size())};
  return std::string(reinterpret_cast<const char*>(&header), kHeaderBytes) + text;
}

ssize_t sendOver(Stream& stream, const Outgoing& out) {
  iovec bytes{const_cast<char*>(out.bytes.data()) + out.sent, out.bytes.size() - out.sent};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> ancillary{};
  if (out.sent == 0 && !out.descriptors.empty()) {
    const std::size_t size = sizeof(int) * out.descriptors.size();
    message.msg_control = ancillary.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), out.descriptors.data(), size);
  }
  return stream.send(message);
}

void takeDescriptors(msghdr& message, std::vector<Descriptor>& into) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      into.emplace_back(fd);
    }
  }
}

// The process at the other end of a unix socket; 0 if it is unknown: over TCP, or in another pid namespace.
pid_t processOf(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

}  // namespace

struct ControlConnections::Connection {
  int peer;
  Stream stream;
  Descriptor process;  // readable once the peer's process has ended; none for peers of other machines
  std::string input;
  std::vector<Descriptor> descriptors;
  std::deque<Outgoing> output;
  Loop::Clock::time_point heard;  // when the last byte came
  bool ended = false;
};

ControlConnections::ControlConnections(Loop& loop, Heartbeat heartbeat, Events events)
    : loop_(loop),
      heartbeat_(std::move(heartbeat)),
      interval_(std::clamp(heartbeat_.timeout / 4, std::chrono::milliseconds(1), kLongestInterval)),
      events_(std::move(events)) {
  scheduleBeat();
}

ControlConnections::~ControlConnections() {
  loop_.cancel(nextBeat_);
  for (auto& [peer, connection] : connections_) {
    connection->ended = true;
    loop_.unwatch(connection->stream.socket().get());
    if (connection->process) loop_.unwatch(connection->process.get());
  }
}

void ControlConnections::add(int peer, Stream stream) {
  assert(loop_.isCurrent());
  auto connection = std::make_shared<Connection>();
  connection->peer = peer;
  connection->stream = std::move(stream);
  connection->heard = loop_.now();
  connections_[peer] = connection;
  loop_.watch(connection->stream.socket().get(), EPOLLIN,
              [this, connection](std::uint32_t events) { onReady(connection, events); });
  watchProcess(connection);
  if (connection->ended) return;
  send(peer, ControlType::Here, "", {});
  if (!connection->stream.hasUnread()) return;
  loop_.post([this, weak = std::weak_ptr(connection)] {  // bytes right behind the handshake
    if (const auto here = weak.lock(); here && !here->ended) readAll(*here);
  });
}

// The end of the connection tells the same, unless another process has inherited the peer's end of it.
void ControlConnections::watchProcess(const std::shared_ptr<Connection>& connection) {
  const pid_t process = processOf(connection->stream.socket().get());
  if (process <= 0) return;
  const auto hasEnded = [this, connection](std::uint32_t) {
    readAll(*connection);  // its last messages
    if (!connection->ended) end(*connection, Error());
  };
  const long fd = ::syscall(SYS_pidfd_open, process, 0);
  if (fd < 0 && errno == ESRCH) return hasEnded(EPOLLIN);
  if (fd < 0) return;
  connection->process = Descriptor(static_cast<int>(fd));
  loop_.watch(connection->process.get(), EPOLLIN, hasEnded);
}

// A process that was stopped itself finds all others silent when it continues: it listens first.
void ControlConnections::beat() {
  const auto now = loop_.now();
  const bool overslept = now - beatDue_ > heartbeat_.timeout / 2;
  const auto connections = connections_;
  const std::string text = connections.empty() ? "" : heartbeat_.text();
  for (const auto& [peer, connection] : connections) {
    if (overslept) connection->heard = now;
    if (connection->output.empty()) send(peer, ControlType::Heartbeat, text, {});
    const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - connection->heard);
    if (silence >= heartbeat_.timeout) events_.silent(peer, silence);
  }
  scheduleBeat();
}

void ControlConnections::scheduleBeat() {
  beatDue_ = loop_.now() + interval_;
  nextBeat_ = loop_.at(beatDue_, [this] { beat(); });
}

void ControlConnections::send(int peer, ControlType type, const std::string& text,
                              const std::vector<int>& descriptors) {
  assert(loop_.isCurrent() && text.size() <= kMaxText && descriptors.size() <= kMaxDescriptors);
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  found->second->output.push_back({frame(type, text), descriptors});
  flush(*found->second);
}

void ControlConnections::onReady(const std::shared_ptr<Connection>& connection, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush(*connection);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) readAll(*connection);
}

void ControlConnections::readAll(Connection& connection) {
  while (!connection.ended && readSome(connection)) {
    while (!connection.ended && takeMessage(connection)) {
    }
  }
}

// True when there may be more to read.
bool ControlConnections::readSome(Connection& connection) {
  std::array<char, 4096> buffer;
  iovec bytes{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> ancillary{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  const ssize_t got = connection.stream.receive(message);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    end(connection, got == 0 ? Error() : connection.stream.failure("recvmsg"));
    return false;
  }
  connection.heard = loop_.now();
  takeDescriptors(message, connection.descriptors);
  connection.input.append(buffer.data(), static_cast<std::size_t>(got));
  return true;
}

// True if there was one.
bool ControlConnections::takeMessage(Connection& connection) {
  std::string& input = connection.input;
  if (input.size() < kHeaderBytes) return false;
  ControlHeader header;
  std::memcpy(&header, input.data(), kHeaderBytes);
  const std::uint32_t length = header.length;
  if (length > kMaxText || connection.descriptors.size() > kMaxDescriptors) {
    end(connection,
        makeError(ErrorKind::Connection, "a control message of ", length, " bytes with ", connection.descriptors.size(),
                  " descriptors; the most are ", kMaxText, " and ", kMaxDescriptors));
    return false;
  }
  if (input.size() < kHeaderBytes + length) return false;
  ControlMessage message{header.type, input.substr(kHeaderBytes, length), {}};
  input.erase(0, kHeaderBytes + length);
  if (message.type == ControlType::Segment) message.descriptors = std::exchange(connection.descriptors, {});
  events_.message(connection.peer, std::move(message));
  return true;
}

void ControlConnections::flush(Connection& connection) {
  connection.stream.flush();
  while (!connection.output.empty()) {
    Outgoing& out = connection.output.front();
    const ssize_t sent = sendOver(connection.stream, out);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (sent < 0) {  // broken: reading finds the end and reports it
      connection.output.clear();
      ::shutdown(connection.stream.socket().get(), SHUT_RDWR);
      break;
    }
    out.sent += static_cast<std::size_t>(sent);
    if (out.sent == out.bytes.size()) connection.output.pop_front();
  }
  const bool blocked = !connection.output.empty() || connection.stream.hasUnsent();
  loop_.rewatch(connection.stream.socket().get(), blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void ControlConnections::end(Connection& connection, const Error& error) {
  connection.ended = true;
  loop_.unwatch(connection.stream.socket().get());
  if (connection.process) loop_.unwatch(connection.process.get());
  const auto node = connections_.extract(connection.peer);  // alive until this is over
  events_.ended(connection.peer, error);
}

}  // namespace fairring
