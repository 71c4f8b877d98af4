// The pipes of this rank's rails, whichever the settings name: of TCP, on connections that the links bring, or of
// TensorPipe, which finds its peers by contacts that travel over the control connections.
// On the loop only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/loop.h"
#include "engine/group.h"
#include "engine/neighbours.h"
#include "exchange/contact_pipes.h"
#include "exchange/rails.h"
#include "exchange/tcp_pipes.h"

namespace fairring {

class RailPipes {
 public:
  // Gives them to the rails. `opened` is called when TensorPipe's have reached all peers; others are not waited for.
  // Throws Failure(Configuration) where this machine can't use the transport.
  // `relinking` makes lanes of TCP's anew that broke.
  RailPipes(Loop& loop, const GroupSettings& settings, const Neighbours& neighbours, const Secret& secret, Rails& rails,
            Relinking relinking, std::function<void()> opened);

  bool isOpen() const { return open_; }
  std::uint64_t bytesSeen(int peer) const { return pipes().bytesSeen(peer); }
  void close() { pipes().close(); }

  void add(Arrival lane);                           // TCP's; throws Failure(Connection)
  void peerLeaves(int peer);                        // and will not come back
  std::optional<std::string> contactFor(int peer);  // TensorPipe's, for a peer that has to connect
  void connect(int peer, const std::string& contact);

 private:
  Pipes& pipes() const;

  const int rank_;
  const std::chrono::milliseconds laneSilence_;
  std::unique_ptr<TcpPipes> tcp_;
  std::unique_ptr<ContactPipes> tensorpipe_;
  bool open_;
};

}  // namespace fairring
