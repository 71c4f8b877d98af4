// The control connections of one group: one to every neighbour, of the machine (unix socket) and of the rails (TCP).
// They carry what is not payload: how to reach a pipe or a segment, the first error, the goodbye. A connection that
// ends without a goodbye means that its rank has died; that is the quickest sign of death there is, so nothing large
// ever queues here.
//
// A message: type u8 | zero 3 B | length u32 little endian | text, at most kMaxText bytes. Descriptors travel beside
// the first byte of a Segment message.
// On the loop only. The receiver is called from the loop, never from within send().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/loop.h"

namespace fairring {

enum class ControlType : std::uint8_t {
  Contact = 1,   // text: where this rank's TensorPipe listens
  Segment = 2,   // two descriptors: the memory of this rank's staging, and the eventfd that wakes this rank
  Failed = 3,    // text: kind and message of the first error
  Goodbye = 4,   // text: number of slices completed; nothing will follow
  Farewell = 5,  // answer to Goodbye: everything needed from you has arrived
};

struct ControlMessage {
  ControlType type;
  std::string text;
  std::vector<Descriptor> descriptors;  // received
};

class ControlReceiver {
 public:
  virtual ~ControlReceiver() = default;
  virtual void onControl(int peer, ControlMessage message) = 0;
  virtual void onControlEnded(int peer, const Error& error) = 0;  // at most once per peer; empty error: end of file
};

class Control {
 public:
  static constexpr std::size_t kMaxText = 64 << 10;

  Control(Loop& loop, ControlReceiver& receiver);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();

  void add(int peer, Descriptor socket);
  // To a peer whose connection is gone: nothing happens, its end was reported.
  void send(int peer, ControlType type, const std::string& text, const std::vector<int>& descriptors = {});
  void sendToAll(ControlType type, const std::string& text);
  std::vector<int> peers() const;  // whose connections stand

 private:
  struct Connection;
  void onReady(Connection& connection, std::uint32_t events);
  bool readSome(Connection& connection);
  bool takeMessage(Connection& connection);
  void flush(Connection& connection);
  void end(int peer, const Error& error);

  Loop& loop_;
  ControlReceiver& receiver_;
  std::map<int, std::shared_ptr<Connection>> connections_;
};

}  // namespace fairring
