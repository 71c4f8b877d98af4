// What every rank publishes about itself in the store, and what follows from all of them.
#pragma once

#include <string>
#include <vector>

#include "plan/topology.h"

namespace fairring {

struct RankFacts {
  Place place;                         // machine and site
  std::string hostname;                // for messages
  std::vector<std::string> addresses;  // IP addresses of its listener: the first for all, further ones for lanes
  int port = 0;
  std::string settings;      // that must be equal on all ranks, as text
  std::string rdmaFabric;    // of its RDMA device; empty: it has none, or was not asked to look
  std::string rdmaObstacle;  // why that can't carry its rails; empty: it can

  const std::string& address() const { return addresses.front(); }
};

// Text each way; decode throws Failure(Connection) on text that is not ours.
std::string encode(const RankFacts& facts);
RankFacts decodeFacts(const std::string& text);

std::vector<Place> placesOf(const std::vector<RankFacts>& facts);

// Throw Failure(Configuration) that names the ranks and what to do: where settings differ between ranks, and where
// ranks of several machines listen on loopback addresses.
void checkSettings(const std::vector<RankFacts>& facts);
void checkAddresses(const std::vector<RankFacts>& facts);

}  // namespace fairring
