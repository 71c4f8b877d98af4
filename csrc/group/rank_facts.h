// The facts that every rank publishes about itself in the store, and the conclusions from those of all ranks.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "plan/topology.h"

namespace fairring {

// The facts that matter to calls on a device's tensors; empty where such calls are not switched on. The last one is
// not published, but asked for once there are such calls.
struct DeviceFacts {
  std::string machine;      // equal ones: what reduces inside a machine joins these ranks; empty: as they share memory
  std::string obstacle;     // why there can't be such calls with this rank; empty: there can
  std::string fabric;       // by which a network reaches its devices' memory without the host's; empty: none does
  int multiprocessors = 0;  // of the smallest of its devices

  static void fields(auto& row, auto& device) { row(device.machine, device.obstacle, device.fabric); }
};

struct RankFacts {
  Place place;                         // machine and site
  std::string hostname;                // for messages
  std::vector<std::string> addresses;  // IP addresses of its listener: the first for all, further ones for lanes
  int port = 0;
  std::string settings;                    // that must be equal on all ranks, as text
  std::string rdmaFabric;                  // of its RDMA device; empty: it has none, or was not asked to look
  std::string rdmaObstacle;                // why this process can't use RDMA at all; empty if it can
  std::vector<std::string> siteAddresses;  // IP addresses for ranks of other sites; empty: the same
  DeviceFacts device = {};
  std::string network = {};       // its network namespace: equal ones reach each other's loopback addresses
  std::string interfacesBy = {};  // why it listens on `addresses`, for messages: "TP_SOCKET_IFNAME=eth0"

  static void fields(auto& row, auto& facts) {
    row("fairring facts 8", facts.place.machine, facts.place.site, facts.hostname, facts.addresses, facts.port,
        facts.settings, facts.rdmaFabric, facts.rdmaObstacle, facts.siteAddresses, facts.device, facts.network,
        facts.interfacesBy);
    row.require(!facts.addresses.empty() && facts.port > 0 && facts.port < 65'536);
  }

  const std::string& address() const { return addresses.front(); }
  // The addresses at which a rank of that site reaches this one.
  const std::vector<std::string>& addressesFrom(const std::string& site) const {
    return site == place.site || siteAddresses.empty() ? addresses : siteAddresses;
  }
};

std::vector<Place> placesOf(const std::vector<RankFacts>& facts);
// The places for calls on a device. There, ranks that share memory are one machine, that of the first of them.
std::vector<Place> devicePlacesOf(const std::vector<RankFacts>& facts);
std::string rankNamed(const std::vector<RankFacts>& facts, std::size_t rank);  // "rank 1 (host): "
// The obstacle of the first rank that has one, with the rank's name; empty where none has.
std::string deviceObstacle(const std::vector<RankFacts>& facts);
// The first rank whose devices' memory a network reaches by itself, and by what; empty where there is none.
std::string deviceFabric(const std::vector<RankFacts>& facts);
// The first rank with a device that is too small for all kernels of NCCL's that a group of these has at once, each of
// which waits for its peers; empty where there is none, or no such kernels. least: multiprocessors that it needs.
std::string tooSmallDevice(const std::vector<RankFacts>& facts, int least);
// Ways down and up at level 0 run at once with 8 blocks each (device/nccl_communicator.h), and a block of NCCL's can
// take a multiprocessor for itself. The rest of these is for our own kernels and the program's.
constexpr int kLeastMultiprocessors = 24;
// Has room besides for a communicator of the program's, with the most blocks that NCCL takes by itself, 32.
constexpr int kLeastBesideOthers = 48;

// Throw Failure(Configuration) that names the ranks and what to do: where settings differ between ranks, and where a
// rank listens on an address that another machine can't reach: that of loopback, or one that the other has itself.
void checkSettings(const std::vector<RankFacts>& facts);
void checkAddresses(const std::vector<RankFacts>& facts);

}  // namespace fairring
