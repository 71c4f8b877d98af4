// Pipes over TCP: one authenticated connection per peer, driven by the loop. What waits for a peer when its socket can
// take more goes out in one system call, whatever messages it belongs to. Received bytes go straight to their place.
// On the loop only.
#pragma once

#include <map>
#include <memory>

#include "base/descriptor.h"
#include "base/loop.h"
#include "exchange/pipes.h"

namespace fairring {

class TcpPipes final : public Pipes {
 public:
  TcpPipes(Loop& loop, PipeReceiver& receiver);
  ~TcpPipes() override;

  void add(int peer, Descriptor socket);  // a connection that has passed the challenge

  void send(int peer, std::span<const Part> parts, Released released) override;
  std::uint64_t bytesSeen(int peer) const override;
  bool drained() const override;
  void close() override;

 private:
  struct Lane;
  void onReady(const std::shared_ptr<Lane>& lane, std::uint32_t events);
  void read(Lane& lane);
  bool onHeader(Lane& lane);
  void write(Lane& lane);
  void end(Lane& lane, const Error& error);

  Loop& loop_;
  PipeReceiver& receiver_;
  std::map<int, std::shared_ptr<Lane>> lanes_;
};

}  // namespace fairring
