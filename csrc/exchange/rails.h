// The exchange of the levels above the machine: shards travel along rails, through pipes.
//
//   reduce-scatter  to each owner of a rail its shard of it; sum what the others sent of mine, in the owners' order
//   all-gather      to each owner of a rail my shard of it; theirs arrive at their own place
//   all-reduce      to each owner the whole rail; sum all of them (one step where the two above take two)
//
// A part is only sent into memory that its receiver has granted. Contributions have areas of their own, granted when
// the slice gets its staging; an all-gather arrives where my reduce-scatter sent from, and is granted when that memory
// is released. Grants of slices that this rank has not begun yet are kept. So a pipe never stops behind a part that
// can't be placed, whatever order ranks call and wait in.
// On the loop only. Invariant: steps_ holds the steps of all admitted slices that are not released.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/loop.h"
#include "exchange/exchange.h"
#include "exchange/pipes.h"

namespace fairring {

class Rails final : public Exchange, public PipeReceiver {
 public:
  Rails(Loop& loop, int rank, Troubles troubles);
  ~Rails() override;

  void use(Pipes& pipes) { pipes_ = &pipes; }  // before the first slice

  void admit(const std::shared_ptr<Slice>& slice) override;
  void start(const std::shared_ptr<Slice>& slice, std::size_t step, Events events) override;
  std::set<int> missing() const override;
  bool needs(int peer, std::uint64_t slicesBelow) const override;
  void leave(int peer) override;
  void stop() override;

  std::byte* place(int peer, const PartHeader& header) override;
  void arrived(int peer, const PartHeader& header) override;
  void ended(int peer, const Error& error) override;
  // Who is told that a pipe has ended: its meaning (death, farewell, accident) depends on the control connection.
  std::function<void(int peer, const Error&)> onPipeEnded;

 private:
  struct Key {
    std::uint64_t slice;
    std::size_t step;
    auto operator<=>(const Key&) const = default;
  };
  struct Transfer {  // what one peer and this rank exchange on one rail
    int peer;
    std::size_t rail;  // index into the level's rails
    Range send;
    std::uint64_t receiveBytes;
    std::byte* receiveAt;
    bool placed = false;
    bool here = false;
  };
  struct InFlight {
    std::shared_ptr<Slice> slice;
    std::vector<Transfer> transfers;  // by rail, then by owner
    Events events;
    std::set<int> granted;       // peers that are ready for our parts
    std::set<int> unsent;        // peers that our parts have not gone to yet
    std::size_t missing = 0;     // transfers to arrive
    std::size_t unreleased = 0;  // messages on their way out
    bool promised = false;       // our memory, to all peers
    bool started = false;
    bool summing = false;
    bool ready = false;
  };

  const Step& stepOf(const Key& key, const InFlight& state) const { return (*state.slice->plan)[key.step]; }
  const LevelLayout& railsOf(const Key& key, const InFlight& state) const;
  std::vector<Transfer> transfersOf(const Slice& slice, std::size_t step) const;
  void grant(const Key& key);
  void onGrant(int peer, const PartHeader& header);
  void sendTo(int peer, const Key& key);
  void onReleased(const Key& key);
  void advance(const Key& key);
  void sum(const Key& key);
  void becomeReady(const Key& key);
  void finishIfReleased(const Key& key);
  std::optional<Key> pairedGather(const Key& key) const;
  Transfer* expected(int peer, const PartHeader& header);
  bool agrees(int peer, const PartHeader& header, const Slice& slice);

  Loop& loop_;
  const int rank_;
  const Troubles troubles_;
  Pipes* pipes_ = nullptr;
  std::map<Key, InFlight> steps_;
  std::map<Key, std::map<int, PartHeader>> earlyGrants_;  // of slices that have no staging here yet
  std::uint64_t admitted_ = 0;                            // all slices below this number have been admitted
  std::set<int> left_;
  bool stopped_ = false;
};

}  // namespace fairring
