// Point-to-point messages of one group on one rank: matches receives with messages, as MPI does. A receive names a
// context, a tag, and a source or none. It takes the first message that fits, and messages from one source with one tag
// are received in the order in which they were sent. A message may be shorter than its receive, never longer: that is
// an error of only these two calls, on both ranks, and the group goes on.
//
// Small messages are eager: they travel at once, within a credit of bytes for each peer, and lie aside here, as
// unexpected messages, until they are received. A message that is larger, or beyond the credit, is only announced. It
// travels when a posted receive has granted its memory, straight to its place. So a peer can take a bounded number of
// bytes here, a receive that is never posted holds nothing up, and two ranks may send to each other at once.
//
// All of this is separate from slices, on channels of its own. The channels deliver in any order; a sender numbers its
// messages, and the receiver matches them by these numbers.
// On the loop only. Calls end by `done`, which may make further calls, but not fail(); its captures are destroyed right
// after the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/loop.h"
#include "exchange/point_to_point_header.h"
#include "transport/channel.h"

namespace fairring {

struct Label {                // the properties that a message and its receive have in common
  std::uint16_t context = 0;  // the user's messages, or one of the group's own protocols
  std::uint32_t tag = 0;

  auto operator<=>(const Label&) const = default;
};

// How many threads of the program wait for a message's end; null: none ever does.
using MessageWaiters = std::shared_ptr<const std::atomic<int>>;

struct Sending {
  int to = 0;
  Label label;
  const std::byte* data = nullptr;  // stays valid until done
  std::uint64_t bytes = 0;
  std::function<void(const Error&)> done;  // the memory may be written again; once
  Loop::Clock::time_point since = {};      // filled in here
  MessageWaiters waiters = nullptr;
};

struct Receiving {
  std::optional<int> from;  // none: from any rank
  Label label;
  std::byte* data = nullptr;                         // stays valid until done
  std::uint64_t bytes = 0;                           // of a message, at most
  std::function<void(const Error&, int from)> done;  // once; `from`: the sender, if there is no error
  Loop::Clock::time_point since = {};                // filled in here
  MessageWaiters waiters = nullptr;
};

struct MessageWait {        // a call that has not ended
  bool sends = false;       // it waits for its receive to be posted; else for the message
  std::optional<int> peer;  // none: any rank
  Label label;
  Loop::Clock::time_point since;
  bool isAwaited = false;  // by a thread of the program
};

struct PointToPointLimits {
  std::uint64_t eagerBytes = 64 << 10;    // of an eager message, at most
  std::uint64_t creditBytes = 256 << 10;  // of eager messages that a peer has not received yet
};

class PointToPoint final : public MessageReceiver {
 public:
  enum class Reach : std::uint8_t { Send, Receive };
  struct Events {
    // Before each call that sends something to this peer, which has not left, or expects something from it.
    std::function<void(int peer, Reach)> reach;
    std::function<void(int peer, const Error&)> channelEnded;  // as MessageReceiver has it
    // A peer has broken the protocol. fail() may follow, but not from within this.
    std::function<void(const Error&)> failed;
    std::function<void()> progress;  // the answer of needs() may have changed
  };

  PointToPoint(Loop& loop, int rank, Events events, PointToPointLimits limits = {});
  ~PointToPoint() override { closeChannels(); }

  // The channel to this peer, before a message goes to it or comes from it.
  void use(int peer, std::shared_ptr<Channel> channel) { peers_[peer].channel = std::move(channel); }
  Channel* channelTo(int peer) const;  // null: there is none
  std::vector<int> connected() const;  // peers whose channels have not ended
  void send(Sending sending);
  void receive(Receiving receiving);

  // Whether a call waits for this peer. The second: whether a call would lose something, an acknowledgement included,
  // if the peer, which has sent that many messages to this rank, went now.
  bool waitsFor(int peer) const;
  bool needs(int peer, std::uint64_t messagesSent) const;
  std::uint64_t sentTo(int peer) const;  // messages, so far
  std::vector<MessageWait> waits() const;
  bool hasLeft(int peer) const;
  // The peer exchanges no further messages: calls that wait for it, and later calls that would, end with this error.
  void leave(int peer, const Error& error);
  // The same, and ends the peer's channel: messages on their way are lost.
  void lose(int peer, const Error& error);
  // Ends all channels and calls. From the top of the loop only, and nothing is asked of this afterwards.
  void fail(const Error& error);

  std::byte* place(int peer, const MessageHeader& header) override;
  void arrived(int peer, const MessageHeader& header) override;
  void ended(int peer, const Error& error) override;

 private:
  using Header = PointToPointHeader;
  struct Envelope {  // a message that has been sent here
    int from = 0;
    std::uint64_t number = 0;
    Label label;
    std::uint64_t bytes = 0;
    bool eager = false;
    bool isHere = false;           // all of it, or its announcement
    bool isPlaced = false;         // an announced one: its bytes are coming
    std::vector<std::byte> aside;  // of an eager one without a receive
    std::optional<Receiving> receive;
    bool isRefused = false;  // too long: it is not received any more
  };
  using EnvelopeRef = std::shared_ptr<Envelope>;

  using Done = std::function<void(const Error&)>;

  struct Peer {
    std::shared_ptr<Channel> channel;
    std::uint64_t sent = 0;        // messages
    std::uint64_t eagerSent = 0;   // bytes, including the overhead of each message
    std::uint64_t eagerTaken = 0;  // the part of these that the peer has reported as received
    std::map<std::uint64_t, Sending> announced;
    std::map<std::uint64_t, Done> underWay;  // on the channel

    std::uint64_t came = 0;  // messages that are here
    std::uint64_t next = 0;  // number of the message to be matched next
    std::uint64_t held = 0;  // bytes of eager messages, as above
    std::uint64_t taken = 0;
    std::uint64_t told = 0;                          // of taken
    std::map<std::uint64_t, EnvelopeRef> envelopes;  // that are not received yet
    Error gone;
  };

  Header header(Peer& peer, Header::Kind kind, const Label& label, std::uint64_t number);
  void say(int to, const Header& header);
  void transmit(int to, const Header& header, Sending sending);
  void onSent(int to, std::uint64_t number);
  void onGrant(int from, const Header& header);
  void onRefusal(int from, const Header& header);
  std::optional<Sending> takeAnnounced(int from, std::uint64_t number);

  EnvelopeRef open(int from, const Header& header);
  void matchInOrder(Peer& peer);
  void match(const EnvelopeRef& envelope);
  void assign(const EnvelopeRef& envelope, Receiving receive);
  void refuse(const EnvelopeRef& envelope, const Receiving& receive);
  void onHere(const EnvelopeRef& envelope);
  void finish(const EnvelopeRef& envelope);
  void giveCredit(int to);
  void closeChannels();
  void forget(const EnvelopeRef& envelope);  // that no receive has taken
  void violated(int by, const char* how, const Header& header);
  Error tooLong(int from, int to, const Label& label, std::uint64_t bytes, std::uint64_t room) const;

  Loop& loop_;
  const int rank_;
  const Events events_;
  const PointToPointLimits limits_;
  std::map<int, Peer> peers_;
  std::map<Label, std::list<Receiving>> posted_;        // in order
  std::map<Label, std::list<EnvelopeRef>> unexpected_;  // in the order in which they can be received
};

}  // namespace fairring
