// Stream sockets as this project uses them: non-blocking, closed on exec, TCP without delay. Stateless; any thread.
// Connections are made and accepted only by these functions, so a simulation with a network of its own links its own
// definitions of them (tests/simulation/sockets.h).
#pragma once

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/error.h"
#include "transport/socket_address.h"

namespace fairring {

// The network has no way to the other machine now. It may have one in a moment, when a link comes back.
class Unreachable : public Failure {
 public:
  using Failure::Failure;
};
inline bool meansUnreachable(int code) { return code == EHOSTUNREACH || code == ENETUNREACH; }  // an errno

// They throw Failure(System) naming the call that failed.
// Empty where the address is in use.
Descriptor listenOn(const SocketAddress& address);
int portOf(const Descriptor& listener);
bool isLocal(const Descriptor& socket);        // of the unix namespace: it does not leave the machine
std::string peerOf(const Descriptor& socket);  // for people: "10.0.0.7 port 40112", "this machine"
// Connecting goes on in the background; the socket turns writable when it is through, finishConnect says how it went.
// A local listener answers at once: Failure(Connection) where it has too many waiting, PeerDied where there is none.
// So does this machine where it has no way out: Unreachable.
Descriptor startConnect(const SocketAddress& address, const std::optional<SocketAddress>& source = std::nullopt);
int finishConnect(const Descriptor& socket);        // 0, or an errno
Descriptor acceptFrom(const Descriptor& listener);  // empty if none waits; errno says whether that is all
// Sets up a connection that carries payload. It breaks if the other machine does not acknowledge data, or does not
// answer a keep-alive probe, for that long (0: the system's default). Little unsent data may wait in the kernel, so
// that it does not delay more urgent messages.
void prepareForPayload(const Descriptor& socket, std::chrono::milliseconds patience);
// Sets up one of many connections that carry payload at once, after connecting (docs/gotchas.md). To a near machine it
// takes CUBIC if the system's congestion control is BBR, with which such connections share a network card unevenly, and
// repeats packets that a switch has dropped after 40 ms instead of 200, where the kernel can. Connections to farther
// machines keep what the system has: on long ways packets are lost for other reasons than congestion.
void shareEvenly(const Descriptor& socket);

}  // namespace fairring
