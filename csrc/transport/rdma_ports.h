// The ports of this machine's RDMA devices, with the GID by which each is reached, and the choice between them for
// channels of our own (verbs_channel.h), which can take any port and GID.
//
// The GID of a RoCE port is one of RoCE v2: that of an IPv4 address first, then of a global IPv6 address, then the
// link-local one. A port of InfiniBand has GID 0. A rank takes a port near the processors that it may run on, the
// fastest of these; ranks of one machine take turns on ports that are equal, on one fabric. They do not where that has
// InfiniBand's default prefix, which fabrics that do not reach each other may share.
// Any thread; reads the present state and keeps nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "transport/rdma_devices.h"
#include "transport/rdma_offer.h"

namespace fairring {

struct RdmaPort {
  std::string device;  // "mlx5_0"
  int number = 1;
  std::string linkLayer = {};  // "InfiniBand" or "Ethernet"
  std::string netdev = {};     // RoCE only
  int gidIndex = 0;
  std::array<std::uint8_t, 16> gidBytes{};
  std::string fabric = {};  // equal on ports that reach each other, as far as can be told from here
  int numaNode = -1;        // -1: near to none
  std::string rate = {};    // "100 Gb/sec (4X EDR)"
  std::string gid = {};
  std::string obstacle = {};  // why the port can't be used, and the remedy; empty if it can

  std::string name() const { return device + ", port " + std::to_string(number); }
};

std::vector<RdmaPort> rdmaPorts(const RdmaSources& sources = {});  // by device and number
std::set<int> numaNodesHere();                                     // of the processors that this thread may run on
// Those among which ranks on these nodes take turns; empty if none can be used.
std::vector<RdmaPort> nearestPorts(std::vector<RdmaPort> ports, const std::set<int>& numaNodes);
// On that fabric, for the rank with this index among those of its machine. Throws Failure(Configuration) if there is
// none.
RdmaPort nearestPort(int localIndex, const std::string& fabric);
RdmaPort nearestPort(std::vector<RdmaPort> ports, const std::set<int>& numaNodes, int localIndex,
                     const std::string& fabric);

// The place of a process among those of its machine, by which they take turns on equal ports. A group of some of them
// knows only these: each of several groups, of one rank per machine, would take the first port. So the place is that in
// the group with the most ranks on this machine that the process has been in so far. Any thread.
class PlaceOnMachine {
 public:
  static PlaceOnMachine& ofThisProcess();

  // In a group with so many ranks on this machine this one has that index among them. Returns the place: where all
  // groups so far had one rank here, the global rank, since most launchers number a machine's ranks in a row.
  int in(std::uint32_t ranksHere, std::uint32_t index, int globalRank);

 private:
  std::atomic<std::uint64_t> best_ = 0;  // such a group's ranks here, and the index in 32 bits
};

// The offer of this process with that many peers and bytes of staging, by the state of this machine or a given one.
RdmaOffer verbsOffer(int peers, std::uint64_t stagingBytes);
RdmaOffer verbsOffer(const std::vector<RdmaPort>& ports, const std::set<int>& numaNodes, const RdmaRights& rights,
                     int peers, std::uint64_t stagingBytes);

}  // namespace fairring
