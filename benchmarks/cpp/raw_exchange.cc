#include "raw_exchange.h"

#include <sched.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "transport/socket.h"

namespace fairring {

RawExchange::RawExchange(Meeting& meeting, Wait wait) : rank_(meeting.rank()), wait_(wait) {
  const Descriptor listener = listenAt(meeting.address(), 0);
  const auto addresses = meeting.tell(meeting.address());
  const auto ports = meeting.tell(std::to_string(portOf(listener)));
  const auto& machines = meeting.machines();
  const auto own = static_cast<std::size_t>(rank_);
  for (std::size_t peer = 0; peer < own; ++peer) {
    if (machines[peer] == machines[own]) continue;
    Descriptor socket = connectTo(addresses[peer], std::atoi(ports[peer].c_str()));
    writeAll(socket, {reinterpret_cast<const char*>(&rank_), sizeof rank_});
    peers_[static_cast<int>(peer)] = std::move(socket);
  }
  for (std::size_t peer = own + 1; peer < machines.size(); ++peer) {
    if (machines[peer] == machines[own]) continue;
    Descriptor socket = acceptOne(listener);
    int from = 0;
    readAll(socket, {reinterpret_cast<char*>(&from), sizeof from});
    peers_[from] = std::move(socket);
  }
}

void RawExchange::sum(std::span<float> tensor) {
  check(tensor.size_bytes() <= kMostBytes, ErrorKind::Usage, "an exchange of ", tensor.size_bytes(), " bytes; at most ",
        kMostBytes);
  const std::span<const char> outgoing(reinterpret_cast<const char*>(tensor.data()), tensor.size_bytes());
  for (const auto& [peer, socket] : peers_) writeAll(socket, outgoing);
  incoming_.resize(tensor.size());
  for (const auto& [peer, socket] : peers_) {
    receive(socket, {reinterpret_cast<char*>(incoming_.data()), tensor.size_bytes()});
    for (std::size_t i = 0; i < tensor.size(); ++i) tensor[i] += incoming_[i];
  }
}

void RawExchange::receive(const Descriptor& socket, std::span<char> bytes) const {
  if (wait_ == Wait::Sleep) return readAll(socket, bytes);
  while (!bytes.empty()) {
    const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) {
      ::sched_yield();
      continue;
    }
    if (got < 0) throw Failure(systemError("recv"));
    check(got > 0, ErrorKind::Connection, "another rank of the benchmark has ended: its own output says why");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

std::vector<int> RawExchange::ranks() const {
  std::vector<int> all{rank_};
  for (const auto& [peer, socket] : peers_) all.push_back(peer);
  return all;
}

}  // namespace fairring
