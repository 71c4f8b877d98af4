// One connection on its way in, on the loop: it goes through the keyed challenge of challenge.h and then, if the group
// has TLS and the connection leaves the machine, through TLS's handshake. The result is the stream, or an error if it
// takes longer than the deadline. TLS comes second, so a stranger meets only the challenge. Both sides then send the
// challenge's channel binding over TLS: its ends are those that know the secret, with nothing between them. An error of
// kind Connection means that the other side closed meanwhile: it may have been too busy, so trying again can help; with
// other kinds it can't. PeerDied: nothing listens there. On the loop only. `finished` is called once, never from the
// constructor; the Handshake may be destroyed in it.
#pragma once

#include <functional>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/loop.h"
#include "transport/challenge.h"
#include "transport/socket.h"
#include "transport/stream.h"
#include "transport/tls.h"

namespace fairring {

class Handshake {
 public:
  using Finished = std::function<void(const Error&)>;

  using TlsOf = std::function<std::shared_ptr<const Tls>(const Greeting&)>;  // none: plain
  struct Terms {
    TlsStream::Side side;
    Challenge challenge;
    TlsOf tls;  // once the challenge is passed
    std::chrono::milliseconds timeout;
  };

  Handshake(Loop& loop, Descriptor socket, Terms terms, Finished finished);
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;
  ~Handshake();

  const Greeting& greeting() const { return challenge_.greeting(); }
  bool spoke() const { return spoke_; }                // a byte has come: more than a probe of our listener
  bool isUnreachable() const { return unreachable_; }  // the network had no route to the other machine
  bool hasProven() const { return state_ == Challenge::State::Done; }  // that it knows the secret
  const Descriptor& socket() const { return socket_; }
  Stream takeStream() { return {std::move(socket_), std::move(tls_)}; }  // after success, once

 private:
  void onReady(std::uint32_t events);
  void readMessage();
  void writeOutput();
  void secure();
  void openTls();
  Error sendBinding();
  Error receiveBinding();
  void finish(const Error& error);

  Loop& loop_;
  Descriptor socket_;
  Challenge challenge_;
  const TlsStream::Side side_;
  const TlsOf tlsOf_;
  Challenge::State state_ = Challenge::State::Wants;
  Finished finished_;
  Loop::TimerId timer_;
  bool connected_ = false;
  bool spoke_ = false;
  bool unreachable_ = false;
  std::vector<std::byte> unsent_;
  std::unique_ptr<TlsStream> tls_;  // once it has begun
  Challenge::ChannelBinding binding_{};
  std::size_t saidBytes_ = 0;
  Challenge::Bytes32 heard_{};
  std::size_t heardBytes_ = 0;
};

}  // namespace fairring
