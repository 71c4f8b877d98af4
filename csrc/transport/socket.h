// Stream sockets as this project uses them: non-blocking, closed on exec, TCP without delay. Stateless; any thread.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>

#include "base/descriptor.h"

namespace fairring {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  bool operator==(const SocketAddress& other) const {
    return length == other.length && std::memcmp(&storage, &other.storage, length) == 0;
  }
};

// "10.0.0.3", "fe80::1%eth0". Throws Failure(Configuration) where the text is no address.
SocketAddress tcpAddress(const std::string& ip, int port);
// In the abstract namespace: no file, seen by every process of the same network namespace.
SocketAddress localAddress(const std::string& name);
// Two processes of one network namespace never listen on the same address and port, so the name is unique there.
SocketAddress localAddressOf(const std::string& ip, int port);

// The functions below throw Failure(System) naming the call that failed.
// Empty where the address is in use.
Descriptor listenOn(const SocketAddress& address);
int portOf(const Descriptor& listener);
bool isLocal(const Descriptor& socket);        // of the unix namespace: it does not leave the machine
std::string peerOf(const Descriptor& socket);  // for people: "10.0.0.7 port 40112", "this machine"
// Connecting goes on in the background; the socket turns writable when it is through, finishConnect says how it went.
// Failure(Connection) where a local listener has too many waiting.
Descriptor startConnect(const SocketAddress& address, const std::optional<SocketAddress>& source = std::nullopt);
int finishConnect(const Descriptor& socket);        // 0, or an errno
Descriptor acceptFrom(const Descriptor& listener);  // empty when none waits; errno says whether that is all
// For a connection that carries payload: what the other machine does not acknowledge for so long breaks it, and so does
// a silence when it is asked for a sign of life (0: so long as the system says); and little waits in the kernel,
// unsent, before what is more urgent.
void prepareForPayload(const Descriptor& socket, std::chrono::milliseconds patience);
// Once it is connected, for one of many connections that carry payload at once: to a near machine it takes CUBIC where
// the system's congestion control is BBR, by which such connections share a network card unevenly (docs/gotchas.md).
// Farther machines keep the system's: on long ways packets are lost for other reasons than congestion.
void shareEvenly(const Descriptor& socket);

}  // namespace fairring
