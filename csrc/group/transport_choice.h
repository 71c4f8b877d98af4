// Which transport each level takes: what the user asked for, or by "auto" RDMA between the machines of a site where
// every rank can use it, and TCP between sites: nobody knows what fabric leads there. Follows from the facts of all
// ranks, so all choose alike. Two ranks between which RDMA does not come about by "auto" take TCP (channel_opening.h).
// Any thread.
#pragma once

#include <string>
#include <vector>

#include "group/rank_facts.h"
#include "transport/transport.h"

namespace fairring {

struct TransportSettings {  // "auto", or the name of a transport
  std::string rail = "auto";
  std::string site = "auto";
};

struct TransportChoice {
  Transports transports;
  std::string rdmaRefused;   // why "auto" left RDMA alone, where a site has several machines; else empty
  bool rdmaIsThere = false;  // some rank has a device, so that this is news
};

// The first for RDMA among these: the one that "auto" takes where it can.
const Transport& automaticRdma(const std::vector<Transport>& transports);

// Of these transports. Throws Failure(Configuration) where RDMA was asked for and some rank can't.
TransportChoice chooseTransport(const TransportSettings& settings, const std::vector<RankFacts>& facts,
                                const std::vector<Transport>& transports);

}  // namespace fairring
