// The control connections of one group: one to every neighbour, of the machine (unix socket) and of the rails (TCP).
// They carry what is not payload: heartbeats, how to reach a channel or a segment, the first error, the leave. A
// connection that ends without a leave means that its rank has died; that is the quickest sign of death there is, so
// nothing large ever queues here.
//
// Two threads: this object and its receiver belong to the group's loop, the bytes to the vitals' loop, which does
// nothing else and so beats on while sums, the user's Python or a debugger of his keep everything else busy.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/loop_thread.h"
#include "transport/control_connections.h"

namespace fairring {

class ControlReceiver {
 public:
  virtual ~ControlReceiver() = default;
  virtual void onControl(int peer, ControlMessage message) = 0;
  virtual void onControlEnded(int peer, const Error& error) = 0;  // at most once per peer; empty error: end of file
  // Nothing has come from the peer for so long; said again with every beat while that is so.
  virtual void onSilent(int peer, std::chrono::milliseconds silence) = 0;
};

class Control {
 public:
  static constexpr std::size_t kMaxText = ControlConnections::kMaxText;

  Control(Loop& loop, LoopThread& vitals, ControlReceiver& receiver, Heartbeat heartbeat);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();  // sends what send() was given before, as far as the connections take it at once

  void add(int peer, Stream stream);
  // To a peer whose connection is gone: nothing happens, its end is reported. The descriptors stay open until this
  // object is gone.
  void send(int peer, ControlType type, std::string text, std::vector<int> descriptors = {});
  const std::set<int>& peers() const { return peers_; }  // whose connections stand, as far as is known here

 private:
  ControlConnections::Events eventsTo(ControlReceiver& receiver);

  Loop& loop_;
  LoopThread& vitals_;
  std::set<int> peers_;
  const std::shared_ptr<Control*> self_;        // events that are under way when this object goes find it gone
  std::unique_ptr<ControlConnections> stream_;  // the vitals' loop's
};

}  // namespace fairring
