// The exchange of the levels above the machine: shards travel along rails, through channels.
//
//   reduce-scatter  send each owner of a rail its shard of it; sum the others' contributions to mine
//   all-gather      send each owner of a rail my shard of it; theirs arrive at their own place
//   all-reduce      send each owner the whole rail; sum all of them (one step where the two above take two)
//   scatter         from the root's owner to each owner its shard
//   gather          from each owner its shard to the root's owner
//   all-to-all      send each owner the cells that go its way (cells.h)
//   relay           from the root's owner the whole rail to the next owners, which send it on once they have it
//
// Small messages are sent at once, within a credit, and wait aside if their place is not free (eager.h). Larger ones
// are only sent into memory that their receiver has granted. Contributions have areas of their own, granted when the
// slice gets its staging. An all-gather arrives where my reduce-scatter sent from, if there was one, and is granted
// when that memory is released. Grants of slices that this rank has not begun yet are kept. So a channel never stops
// behind a message that can't be placed, whatever order ranks call and wait in. The slice's body says what is done
// before a step is sent and once all of it is here (slice_body.h). On the loop only. Invariant: steps_ holds the steps
// of all admitted slices that are not released.
#pragma once

#include <map>
#include <vector>

#include "base/loop.h"
#include "exchange/eager.h"
#include "exchange/exchange.h"
#include "exchange/recorder.h"
#include "exchange/slice_header.h"
#include "exchange/traffic.h"
#include "exchange/transfer.h"
#include "transport/transport.h"

namespace fairring {

class Rails final : public Exchange, public MessageReceiver {
 public:
  Rails(Loop& loop, int rank, Troubles troubles, EagerLimits limits = {});
  ~Rails() override;

  // One for each peer, before the first slice. They end with this.
  void use(const ChannelsByPeer& channels) {
    for (const auto& [peer, channel] : channels) channels_[peer] = channel;
  }
  void recordIn(Recorder& recorder) { recorder_ = &recorder; }  // likewise

  void admit(const std::shared_ptr<Slice>& slice) override;
  void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) override;
  std::set<int> missing() const override;
  using Exchange::needs;
  bool needs(int peer, const Watermarks& slicesBelow) const override;
  void stop() override;                // and closes the channels; what they have counted stays
  bool isLinked() const;               // all channels are open
  Channel* channelTo(int peer) const;  // null: there is none
  const ChannelsByPeer& channels() const { return channels_; }
  bool isAtRest() const;  // no step, no grant, no message aside, and nothing asked for or held back
  const TrafficByLevel& traffic() const { return traffic_; }  // sent
  std::vector<SliceRecord> underWay() const;                  // steps that have begun and are not over

  std::byte* place(int peer, const MessageHeader& header) override;
  void arrived(int peer, const MessageHeader& header) override;
  void ended(int peer, const Error& error) override;
  // Called when a channel has ended. Its meaning (death, leave, accident) depends on the control connection.
  std::function<void(int peer, const Error&)> onChannelEnded;

 private:
  struct Key {
    SliceId slice;
    std::size_t step;
    auto operator<=>(const Key&) const = default;
  };
  struct InFlight {
    std::shared_ptr<Slice> slice;
    std::vector<Transfer> transfers;  // by rail, then by owner
    Events events;
    std::set<int> granted;                // peers that are ready for our messages
    std::map<int, std::uint64_t> unsent;  // bytes for peers that have not been sent yet
    std::size_t missing = 0;              // transfers to arrive
    std::set<int> unreleased;             // peers that have yet to acknowledge them
    bool promised = false;                // our memory has been granted for all arrivals
    bool started = false;
    bool offered = false;  // our messages may go
    bool computing = false;
    bool ready = false;
    SliceRecord record;
    std::map<int, SliceRecord> sends;  // of unacknowledged messages, by peer
  };

  struct Neighbour {
    BySliceQueue<EagerCredit> credit;
    Watermarks told;          // the peer knows that we have the slices below these
    std::set<SliceId> asked;  // for these slices, which we don't have yet: each awaits its own answer
    std::set<Key> held;       // steps whose messages wait for credit, or for a grant
  };

  static Key keyOf(const SliceHeader& header) { return {SliceId::fromWire(header.slice), header.step}; }
  Verb verbOf(const Key& key, const InFlight& state) const { return (*state.slice->plan)[key.step].verb; }
  bool isAdmitted(SliceId slice) const { return slice.sequence < admitted_[slice.queue]; }
  void begin(const Key& key);
  void offer(const Key& key);
  void promise(const Key& key);
  void adopt(const Key& key);
  void send(int peer, SliceId slice, std::span<const Message> messages, Channel::Released released);
  void say(SliceHeader::Kind kind, int peer, SliceId slice, std::uint64_t signature, std::size_t step = 0);
  void heard(int peer, SliceId slice);
  void onGrant(int peer, const SliceHeader& header);
  void onCreditRequest(int peer, const SliceHeader& header);
  void tooFarAhead(const char* what, int peer, SliceId slice);
  std::vector<int> inTurn(const std::map<int, std::uint64_t>& byPeer) const;
  bool maySend(int peer, const Key& key);
  void sendTo(int peer, const Key& key);
  void recordSend(int peer, const Key& key, InFlight& state);
  void recordArrival(int peer, const Transfer& transfer, InFlight& state);
  void onReleased(int peer, const Key& key);
  void advance(const Key& key);
  void becomeReady(const Key& key);
  void finishIfReleased(const Key& key);
  void promisePairedGather(const Key& key);
  Transfer* expected(int peer, const SliceHeader& header);
  bool agrees(int peer, const SliceHeader& header, const Slice& slice);
  std::byte* refuse(int peer, const SliceHeader& header);

  Loop& loop_;
  const int rank_;
  ChannelsByPeer channels_;
  Recorder* recorder_ = nullptr;  // null if there is none
  std::map<Key, InFlight> steps_;
  std::map<Key, std::map<int, SliceHeader>> earlyGrants_;  // of slices that have no staging here yet
  const EagerLimits limits_;
  UnexpectedMessages unexpected_;
  std::map<int, Neighbour> neighbours_;
  Watermarks admitted_;  // all slices below have been admitted
  TrafficByLevel traffic_;
};

}  // namespace fairring
