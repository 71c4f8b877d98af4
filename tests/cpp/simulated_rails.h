// The rails of simulated devices that have their own: a send of one rank meets a receive of another in the same way, in
// the order of their launches, as in a communicator. A rank's calls in a way follow one another, on any streams. Sent
// data is read at some time while both are at it. An abort ends the exchanges of its own rank; its peers wait for ever,
// as in a communicator, until they abort too.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "device/accelerator.h"

namespace fairring::testing {

class SimulatedRails {
 public:
  using Way = Accelerator::Way;

  struct Exchange {  // of one rank
    int rank = 0;
    Way way = Way::Down;
    std::size_t number = 0;  // of its in this way
    std::vector<Transfer> transfers;
    std::vector<std::size_t> sends;     // which of those between the two in this way, by transfer
    std::vector<std::size_t> receives;  // likewise
    std::vector<std::vector<std::byte>> received;
  };

  std::shared_ptr<Exchange> book(int rank, Way way, std::vector<Transfer> transfers) {
    auto exchange = std::make_shared<Exchange>();
    exchange->rank = rank;
    exchange->way = way;
    exchange->number = booked_[{rank, way}]++;
    exchange->transfers = std::move(transfers);
    for (const Transfer& one : exchange->transfers) {
      exchange->sends.push_back(one.sendBytes > 0 ? sends_[{rank, one.peer, way}]++ : 0);
      exchange->receives.push_back(one.receiveBytes > 0 ? receives_[{one.peer, rank, way}]++ : 0);
    }
    exchange->received.resize(exchange->transfers.size());
    return exchange;
  }
  bool mayBegin(const Exchange& one) { return isAborted(one) || over_[{one.rank, one.way}] == one.number; }
  void begin(const Exchange& one) {
    if (isAborted(one)) return;
    for (std::size_t i = 0; i < one.transfers.size(); ++i) {
      const Transfer& transfer = one.transfers[i];
      if (transfer.sendBytes == 0) continue;
      offers_[{{one.rank, transfer.peer, one.way}, one.sends[i]}] = {transfer.sendFrom, transfer.sendBytes};
    }
  }
  bool isOver(Exchange& one) {
    if (isAborted(one)) return true;
    bool over = true;
    for (std::size_t i = 0; i < one.transfers.size(); ++i) {
      const Transfer& transfer = one.transfers[i];
      if (transfer.sendBytes > 0) over = over && isTaken({one.rank, transfer.peer, one.way}, one.sends[i]);
      if (transfer.receiveBytes > 0) over = take(one, i) && over;
    }
    return over;
  }
  void end(const Exchange& one) { ++over_[{one.rank, one.way}]; }
  void abort(int rank) {
    aborted_.insert(rank);
    std::erase_if(offers_,
                  [rank](const auto& offer) { return std::get<0>(offer.first.first) == rank; });  // of its memory
  }

 private:
  using Pair = std::tuple<int, int, Way>;  // from, to
  struct Offer {
    const std::byte* from;
    std::uint64_t bytes;
    bool taken = false;
  };

  bool isAborted(const Exchange& one) const { return aborted_.contains(one.rank); }
  bool isTaken(const Pair& pair, std::size_t number) { return offers_.at({pair, number}).taken; }
  bool take(Exchange& one, std::size_t i) {
    const Transfer& transfer = one.transfers[i];
    if (!one.received[i].empty()) return true;
    const auto offer = offers_.find({{transfer.peer, one.rank, one.way}, one.receives[i]});
    if (offer == offers_.end() || offer->second.bytes != transfer.receiveBytes) return false;  // as NCCL: for ever
    one.received[i].assign(offer->second.from, offer->second.from + offer->second.bytes);
    offer->second.taken = true;
    return true;
  }

  std::map<std::pair<int, Way>, std::size_t> booked_;
  std::map<std::pair<int, Way>, std::size_t> over_;
  std::map<Pair, std::size_t> sends_;
  std::map<Pair, std::size_t> receives_;
  std::map<std::pair<Pair, std::size_t>, Offer> offers_;
  std::set<int> aborted_;  // ranks
};

}  // namespace fairring::testing
