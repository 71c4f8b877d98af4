#include "meeting.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "transport/socket.h"

namespace fairring {

namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr int kPauseMs = 20;  // between two attempts to reach a listener that is not there yet

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  check(value != nullptr, ErrorKind::Configuration, name,
        " is not set: start this with `fairring lab ... -- <this program>`, or with torchrun --no-python");
  return value;
}

int number(const char* name) { return std::atoi(variable(name).c_str()); }

template <class T>
std::span<char> bytesOf(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof value};
}

void sayText(const Descriptor& socket, const std::string& text) {
  std::uint64_t size = text.size();
  writeAll(socket, bytesOf(size));
  writeAll(socket, text);
}

std::string hearText(const Descriptor& socket) {
  std::uint64_t size = 0;
  readAll(socket, bytesOf(size));
  std::string text(size, '\0');
  readAll(socket, text);
  return text;
}

Descriptor blockingSocket(int family) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw Failure(systemError("socket"));
  return socket;
}

void withoutDelay(const Descriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string ownAddress(const Descriptor& socket) {
  SocketAddress own;
  own.length = sizeof own.storage;
  auto* address = reinterpret_cast<sockaddr*>(&own.storage);
  std::array<char, NI_MAXHOST> host{};
  if (::getsockname(socket.get(), address, &own.length) != 0) throw Failure(systemError("getsockname"));
  ::getnameinfo(address, own.length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return host.data();
}

}  // namespace

Meeting::Meeting()
    : rank_(number("RANK")), world_(number("WORLD_SIZE")), master_(variable("MASTER_ADDR")), address_(master_) {
  rank_ == 0 ? gather(number("MASTER_PORT")) : join(number("MASTER_PORT"));
  for (const std::string& machine : tell(variable("GROUP_RANK"))) machines_.push_back(std::atoi(machine.c_str()));
}

void Meeting::gather(int port) {
  const Descriptor listener = listenAt(address_, port);
  ranks_.resize(static_cast<std::size_t>(world_));
  for (int others = world_ - 1; others > 0; --others) {
    Descriptor socket = acceptOne(listener);
    int rank = 0;
    readAll(socket, bytesOf(rank));
    ranks_.at(static_cast<std::size_t>(rank)) = std::move(socket);
  }
}

void Meeting::join(int port) {
  ranks_.push_back(connectTo(master_, port));
  address_ = ownAddress(ranks_.front());
  writeAll(ranks_.front(), bytesOf(rank_));
}

std::vector<std::string> Meeting::tell(const std::string& mine) {
  std::vector<std::string> all(static_cast<std::size_t>(world_));
  if (rank_ == 0) {
    all[0] = mine;
    for (std::size_t rank = 1; rank < all.size(); ++rank) all[rank] = hearText(ranks_[rank]);
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      for (const std::string& text : all) sayText(ranks_[rank], text);
    }
    return all;
  }
  sayText(ranks_.front(), mine);
  for (std::string& text : all) text = hearText(ranks_.front());
  return all;
}

Descriptor listenAt(const std::string& address, int port) {
  const SocketAddress at = tcpAddress(address, port);
  Descriptor socket = blockingSocket(at.storage.ss_family);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.length) != 0) {
    throw Failure(systemError("bind"));
  }
  if (::listen(socket.get(), SOMAXCONN) != 0) throw Failure(systemError("listen"));
  return socket;
}

Descriptor acceptOne(const Descriptor& listener) {
  Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) throw Failure(systemError("accept4"));
  withoutDelay(socket);
  return socket;
}

Descriptor connectTo(const std::string& address, int port) {
  const SocketAddress to = tcpAddress(address, port);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    Descriptor socket = blockingSocket(to.storage.ss_family);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) == 0) {
      withoutDelay(socket);
      return socket;
    }
    if (errno != ECONNREFUSED || std::chrono::steady_clock::now() > end) throw Failure(systemError("connect"));
    ::poll(nullptr, 0, kPauseMs);
  }
}

void writeAll(const Descriptor& socket, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) throw Failure(systemError("send"));
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

void readAll(const Descriptor& socket, std::span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    if (got < 0) throw Failure(systemError("recv"));
    check(got > 0, ErrorKind::Connection, "another rank of the benchmark has ended: its own output says why");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace fairring
