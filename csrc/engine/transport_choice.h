// Which transport the rails take: what the user asked for, or by "auto" RDMA where every rank can use it. Follows from
// the facts of all ranks, so all choose alike. Any thread.
#pragma once

#include <string>
#include <vector>

#include "engine/rank_facts.h"
#include "exchange/transport.h"

namespace fairring {

struct TransportChoice {
  Transport transport;
  std::string rdmaRefused;   // why "auto" left RDMA alone, where there are several machines; else empty
  bool rdmaIsThere = false;  // some rank has a device, so that this is news
};

// setting: "auto", "tcp", or TensorPipe's "uv", "shm", "ibv". Throws Failure(Configuration) where "ibv" was asked for
// and some rank can't.
TransportChoice chooseTransport(const std::string& setting, const std::vector<RankFacts>& facts);

}  // namespace fairring
