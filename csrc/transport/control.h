// The control connections of one group: one to every neighbour, of the machine (unix socket) and of the rails (TCP).
// They carry everything but payload: heartbeats, contacts of channels and segments, the first error, the leave. If a
// connection ends without a leave, its rank has died. No other sign of death is as quick, so nothing large ever queues
// here.
//
// Two threads: this object and its receiver belong to the group's loop, the bytes to the vitals' loop, which does
// nothing else and so keeps beating while sums, the user's Python or a debugger keep all other threads busy.
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
  // Nothing has come from the peer for that long; repeated with every beat while this lasts.
  virtual void onSilent(int peer, std::chrono::milliseconds silence) = 0;
  virtual void onTrouble(const Error& error) = 0;  // an exception in the vitals' loop, which does not come here
};

class Control {
 public:
  static constexpr std::size_t kMaxText = ControlConnections::kMaxText;

  Control(Loop& loop, LoopThread& vitals, ControlReceiver& receiver, Heartbeat heartbeat);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();  // sends what send() was given before, as far as the connections take it at once

  void add(int peer, Stream stream);
  // If the connection to the peer is gone, nothing happens, and its end is reported. The descriptors stay open until
  // this object is gone.
  void send(int peer, ControlType type, std::string text, std::vector<int> descriptors = {});
  const std::set<int>& peers() const { return peers_; }  // with an open connection, as far as is known here

 private:
  ControlConnections::Events eventsTo(ControlReceiver& receiver);

  Loop& loop_;
  LoopThread& vitals_;
  std::set<int> peers_;
  const std::shared_ptr<Control*> self_;        // events under way when this object goes see that it is gone
  std::unique_ptr<ControlConnections> stream_;  // the vitals' loop's
};

}  // namespace fairring
