// One connection going through the keyed challenge of hello.h, on the loop: waits for the socket, feeds the Hello, and
// hands the socket over when the challenge is passed, or an error when it is not passed by the deadline.
// An error of kind Connection means that the other side closed during the challenge: it may have been too busy, so
// trying again can help; with any other kind it can't.
// On the loop only. `finished` is called once, never from the constructor; the Handshake may be destroyed in it.
#pragma once

#include <functional>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/loop.h"
#include "exchange/hello.h"
#include "exchange/socket.h"

namespace fairring {

class Handshake {
 public:
  using Finished = std::function<void(const Error&)>;

  Handshake(Loop& loop, Descriptor socket, Hello hello, std::chrono::milliseconds timeout, Finished finished);
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;
  ~Handshake();

  const Greeting& greeting() const { return hello_.greeting(); }
  bool spoke() const { return spoke_; }                   // a byte has come: more than a look at whether we listen
  Descriptor takeSocket() { return std::move(socket_); }  // after success, once

 private:
  void onReady(std::uint32_t events);
  void readMessage();
  void writeOutput();
  void finish(const Error& error);

  Loop& loop_;
  Descriptor socket_;
  Hello hello_;
  Hello::State state_ = Hello::State::Wants;
  Finished finished_;
  Loop::TimerId timer_;
  bool connected_ = false;
  bool spoke_ = false;
  std::vector<std::byte> unsent_;
};

}  // namespace fairring
