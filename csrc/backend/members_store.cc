#include "backend/members_store.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fcntl.h>

#include <algorithm>
#include <exception>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "backend/refused_connection.h"
#include "base/descriptor.h"
#include "transport/socket.h"

namespace fairring {
namespace {

bool hasCuda() {
  return c10::impl::hasDeviceGuardImpl(at::kCUDA) && c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount() > 0;
}

// Listens on all addresses if other sites reach this rank by another one than its own site does.
Descriptor listen(const std::vector<RankFacts>& facts, ListenPorts ports) {
  const RankFacts& here = facts.front();
  const bool isReachedByMany = std::ranges::any_of(
      facts, [&](const RankFacts& other) { return here.addressesFrom(other.place.site).front() != here.address(); });
  const bool isSix = here.address().find(':') != std::string::npos;
  const std::string address = !isReachedByMany ? here.address() : isSix ? "::" : "0.0.0.0";
  for (int port = ports.low; port <= ports.high; ++port) {
    if (Descriptor listener = listenOn(tcpAddress(address, port))) return listener;
  }
  throw Failure(makeError(ErrorKind::Configuration, "rank 0 finds no port at ", address, " (FAIRRING_PORTS=", ports.low,
                          "-", ports.high, ") for the store in which the ranks of its NCCL meet: give FAIRRING_PORTS ",
                          "a range with two ports per process of this machine"));
}

// TCPStore closes its descriptor, so it gets a copy that only it has.
int copyOf(const Descriptor& listener) {
  const int copy = ::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  check(copy >= 0, ErrorKind::System, "fcntl(F_DUPFD_CLOEXEC): no descriptor for the store of a group's members");
  return copy;
}

c10d::TCPStoreOptions optionsFor(std::uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  return options;
}

}  // namespace

MembersStore::MembersStore(const std::vector<RankFacts>& facts, int rank, ListenPorts ports)
    : rank_(rank),
      address_(facts.front().addressesFrom(facts.at(static_cast<std::size_t>(rank)).place.site).front()),
      host_(facts.front().hostname) {
  if (rank != 0 || !hasCuda()) return;
  const Descriptor listener = listen(facts, ports);
  const int port = portOf(listener);
  try {
    c10d::TCPStoreOptions options = optionsFor(static_cast<std::uint16_t>(port));
    options.isServer = true;
    options.masterListenFd = copyOf(listener);
    store_ = c10::make_intrusive<c10d::TCPStore>(address_, options);
  } catch (const std::exception& e) {
    throw Failure(makeError(ErrorKind::Connection, "rank 0 can't hold the store in which the ranks of its NCCL meet, ",
                            "at ", address_, " port ", port, ": ", e.what()));
  }
  ownPort_ = static_cast<std::uint16_t>(port);
}

void MembersStore::learn(std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  port_ = port;
  changed_.notify_all();
}

void MembersStore::breakOff(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!broken_) broken_ = error;
  changed_.notify_all();
}

MembersStore::StorePtr MembersStore::get(std::chrono::milliseconds timeout) {
  const std::lock_guard connecting(connecting_);
  std::uint16_t port = kNone;
  {
    std::unique_lock lock(mutex_);
    const auto isOver = [this] { return port_ || broken_; };
    timeout == c10d::Store::kNoTimeout ? changed_.wait(lock, isOver) : (void)changed_.wait_for(lock, timeout, isOver);
    if (broken_) throw Failure(broken_);
    if (store_ && port_) return store_;
    check(port_.has_value(), ErrorKind::Timeout, "rank ", rank_, ": the members of the group had not met after ",
          timeout.count(), " ms: wait for the Work of reconfigure() before the first call on CUDA tensors");
    port = port_.value_or(kNone);
    check(port != kNone, ErrorKind::Usage, "rank 0 (", host_, ") sees no CUDA device, so the group has no store for ",
          "NCCL, whose calls on CUDA tensors are; give that rank a device, or move the tensors to the CPU");
  }
  StorePtr made = connect(port, timeout);
  const std::lock_guard lock(mutex_);
  store_ = std::move(made);
  return store_;
}

// Asks first whether anybody listens: TCPStore tries again for as long as its timeout.
MembersStore::StorePtr MembersStore::connect(std::uint16_t port, std::chrono::milliseconds timeout) const {
  if (refusesConnection(address_, port)) {
    throw Failure(makeError(ErrorKind::PeerDied, "rank 0 (", host_, ") died, or ended, before rank ", rank_,
                            "'s first call on CUDA tensors: nobody listens at ", address_, " port ", port,
                            " any more; look at that rank's own output for the reason")
                      .about({0}));
  }
  try {
    c10d::TCPStoreOptions options = optionsFor(port);
    options.timeout = timeout;
    return c10::make_intrusive<c10d::TCPStore>(address_, options);
  } catch (const std::exception& e) {
    throw Failure(makeError(ErrorKind::Connection, "rank ", rank_, " can't reach the store that rank 0 (", host_,
                            ") has at ", address_, " port ", port, ", in which the ranks of NCCL meet: ", e.what()));
  }
}

}  // namespace fairring
