#include "backend/store_probe.h"

#include <netdb.h>
#include <poll.h>

#include <cstring>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "exchange/socket.h"

namespace fairring {
namespace {

constexpr int kProbeMs = 1'000;

bool answers(const addrinfo& place) {
  SocketAddress address;
  std::memcpy(&address.storage, place.ai_addr, place.ai_addrlen);
  address.length = place.ai_addrlen;
  try {
    const Descriptor probe = startConnect(address);
    pollfd ready{.fd = probe.get(), .events = POLLOUT, .revents = 0};
    return ::poll(&ready, 1, kProbeMs) > 0 && finishConnect(probe) == 0;
  } catch (const Failure&) {
    return false;
  }
}

}  // namespace

bool isStoreGone(c10d::Store& store) {
  c10d::Store* served = &store;
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(served)) served = prefixed->getUnderlyingStore().get();
  const auto* tcp = dynamic_cast<c10d::TCPStore*>(served);
  if (tcp == nullptr) return false;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* places = nullptr;
  if (::getaddrinfo(tcp->getHost().c_str(), std::to_string(tcp->getPort()).c_str(), &hints, &places) != 0) return true;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(places, &::freeaddrinfo);
  for (const addrinfo* place = places; place != nullptr; place = place->ai_next) {
    if (answers(*place)) return false;
  }
  return true;
}

}  // namespace fairring
