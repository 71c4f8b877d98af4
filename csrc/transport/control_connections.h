// The bytes of one group's control connections, and the heartbeats on them. Control (control.h) is its only user.
//
// A message: type u8 | zero 3 B | length u32 little endian | text, at most kMaxText bytes. Descriptors travel beside
// the first byte of a Segment message. Every connection begins with a Here message and carries a Heartbeat per
// interval, whatever else happens in this process; a peer from whom no byte has come for the timeout is reported, once
// an interval, as silent. On a loop of its own only, which nothing else keeps busy; its events come from there, never
// from within send().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/loop.h"
#include "transport/stream.h"

namespace fairring {

enum class ControlType : std::uint8_t {
  Contact = 1,     // text: where a channel to this rank connects to, as it says itself
  Segment = 2,     // two descriptors: the memory of this rank's staging, and the eventfd that wakes this rank
  Failed = 3,      // text: kind and message of the first error
  Leave = 4,       // text: number of slices completed; nothing will follow
  LeaveAck = 5,    // answer to Leave: everything needed from you has arrived
  Heartbeat = 6,   // text: how far this rank is (peer_progress.h)
  CallLog = 7,     // text: the last calls of this rank (CallTable), which are not the receiver's: it is to say so
  Here = 8,        // the first of all: this rank has come to the group, and its heartbeats will follow
  Question = 9,    // a call is late that waits for the receiver: which call is it in, and for whom does it wait?
  Account = 10,    // text: the answer of one rank (inquiry.h), which others pass on
  NoChannel = 11,  // text: why a channel to the receiver, which is to decide, can't be opened here
  TakeTcp = 12,    // text: why; the channel to the receiver is one of TCP
};

struct ControlMessage {
  ControlType type;
  std::string text;
  std::vector<Descriptor> descriptors;  // received
};

struct Heartbeat {
  std::chrono::milliseconds timeout;  // without any sign of life; beats come at a quarter of it, or once a second
  std::function<std::string()> text;  // of the next beat; on the connections' loop
};

class ControlConnections {
 public:
  static constexpr std::size_t kMaxText = 64 << 10;

  struct Events {
    std::function<void(int peer, ControlMessage)> message;
    std::function<void(int peer, const Error&)> ended;                // at most once per peer; empty error: end of file
    std::function<void(int peer, std::chrono::milliseconds)> silent;  // for that long
  };

  ControlConnections(Loop& loop, Heartbeat heartbeat, Events events);
  ControlConnections(const ControlConnections&) = delete;
  ControlConnections& operator=(const ControlConnections&) = delete;
  ~ControlConnections();

  void add(int peer, Stream stream);
  // If the connection to the peer is gone, nothing happens; its end was reported.
  void send(int peer, ControlType type, const std::string& text, const std::vector<int>& descriptors);

 private:
  struct Connection;
  void onReady(const std::shared_ptr<Connection>& connection, std::uint32_t events);
  void watchProcess(const std::shared_ptr<Connection>& connection);
  void readAll(Connection& connection);
  bool readSome(Connection& connection);
  bool takeMessage(Connection& connection);
  void flush(Connection& connection);
  void end(Connection& connection, const Error& error);
  void scheduleBeat();
  void beat();

  Loop& loop_;
  const Heartbeat heartbeat_;
  const std::chrono::milliseconds interval_;
  const Events events_;
  std::map<int, std::shared_ptr<Connection>> connections_;
  Loop::TimerId nextBeat_ = 0;
  Loop::Clock::time_point beatDue_;
};

}  // namespace fairring
