#include "transport/rdma_ports.h"

#include <arpa/inet.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "transport/rdma_system.h"
#include "transport/verbs_endpoint.h"

namespace fairring {

namespace {

namespace fs = std::filesystem;

// A device's queues and its driver's own memory.
constexpr std::uint64_t kQueueBytesPerPeer = 128 << 10;
constexpr std::uint64_t kQueueBytesAnyway = 4 << 20;
// A queue pair names its GID in 8 bits.
constexpr int kMostGidIndex = 255;
constexpr const char* kDefaultFabric = "InfiniBand fe80:0000:0000:0000";

struct Gid {
  enum class Rank : std::uint8_t { Ipv4, Ipv6, LinkLocal };
  Rank rank = Rank::LinkLocal;
  int index = 0;
  std::string text = {};
  std::string netdev = {};
  std::array<std::uint8_t, 16> bytes{};
};

std::array<std::uint8_t, 16> bytesOf(const std::string& gid) {
  std::array<std::uint8_t, 16> bytes{};
  ::inet_pton(AF_INET6, gid.c_str(), bytes.data());
  return bytes;
}

Gid::Rank rankOf(const std::array<std::uint8_t, 16>& gid) {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (std::equal(kMapped.begin(), kMapped.end(), gid.begin())) return Gid::Rank::Ipv4;
  return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80 ? Gid::Rank::LinkLocal : Gid::Rank::Ipv6;
}

// -1: the text is no number.
int numberIn(std::string_view text) {
  int number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::optional<Gid> gidOf(const fs::path& port, const RdmaSources& sources) {
  std::optional<Gid> best;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(port / "gids", ignored)) {
    const std::string name = entry.path().filename();
    Gid gid{.index = numberIn(name), .text = firstLine(entry.path())};
    gid.bytes = bytesOf(gid.text);
    if (gid.index < 0 || gid.index > kMostGidIndex) continue;
    if (std::ranges::all_of(gid.bytes, [](std::uint8_t byte) { return byte == 0; })) continue;
    if (firstLine(port / "gid_attrs/types" / name) != "RoCE v2") continue;
    gid.netdev = firstLine(port / "gid_attrs/ndevs" / name);
    gid.rank = rankOf(gid.bytes);
    if (gid.rank != Gid::Rank::Ipv4 && !hasAddress(gid.netdev, gid.text, sources.addresses)) continue;
    if (!best || std::pair(gid.rank, gid.index) < std::pair(best->rank, best->index)) best = gid;
  }
  return best;
}

std::string fabricOf(const Gid& gid) {
  if (gid.rank == Gid::Rank::Ipv6) return concat("RoCE ", gid.text.substr(0, 19));
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, gid.bytes.data() + 12, text.data(), text.size());
  const std::string network = networkOf(gid.netdev, gid.rank == Gid::Rank::Ipv4 ? text.data() : "");
  return network.empty() ? "RoCE" : concat("RoCE ", network);
}

void readGid(RdmaPort& port, const fs::path& home, const RdmaSources& sources) {
  if (port.linkLayer != "Ethernet") {
    port.gid = firstLine(home / "gids/0");
    port.gidBytes = bytesOf(port.gid);
    port.fabric = concat(port.linkLayer, " ", port.gid.substr(0, 19));
    return;
  }
  const std::optional<Gid> gid = gidOf(home, sources);
  if (!gid) {
    port.netdev = firstLine(home / "gid_attrs/ndevs/0");
    port.fabric = "RoCE";
    port.obstacle =
        concat("it has no GID of RoCE v2, of index ", kMostGidIndex, " or less, with an address of ", port.netdev,
               "; give that interface an IP address (or its link-local one: sysctl net.ipv6.conf.", port.netdev,
               ".disable_ipv6=0)");
    return;
  }
  port.netdev = gid->netdev;
  port.gidIndex = gid->index;
  port.gid = gid->text;
  port.gidBytes = gid->bytes;
  port.fabric = fabricOf(*gid);
}

std::string obstacleOf(const RdmaPort& port, const fs::path& home, const RdmaSources& sources) {
  const std::string type = stateIn(home.parent_path().parent_path() / "node_type");
  if (type != "CA") return concat("it is no InfiniBand or RoCE device (its type is '", type, "')");
  if (const std::string state = stateIn(home / "state"); state != "ACTIVE") {
    return concat("it is ", state, " (", stateIn(home / "phys_state"),
                  "); see to its cable, its interface (ip link set up) or its subnet manager");
  }
  if (!port.obstacle.empty()) return port.obstacle;
  return nodeObstacle(port.device, sources);
}

double gigabitsOf(const RdmaPort& port) { return std::strtod(port.rate.c_str(), nullptr); }

// "0-3,8" holds 8.
bool holds(const std::string& list, int processor) {
  for (const char* at = list.c_str(); *at != '\0';) {
    char* after = nullptr;
    const long first = std::strtol(at, &after, 10);
    if (after == at) return false;
    const long last = *after == '-' ? std::strtol(after + 1, &after, 10) : first;
    if (first <= processor && processor <= last) return true;
    at = *after == ',' ? after + 1 : after;
  }
  return false;
}

}  // namespace

std::vector<RdmaPort> rdmaPorts(const RdmaSources& sources) {
  std::vector<RdmaPort> ports;
  std::error_code ignored;
  for (const fs::directory_entry& device : fs::directory_iterator(sources.classes / "infiniband", ignored)) {
    const std::string node = firstLine(device.path() / "device/numa_node");
    for (const fs::directory_entry& entry : fs::directory_iterator(device.path() / "ports", ignored)) {
      RdmaPort port{.device = device.path().filename(),
                    .number = numberIn(entry.path().filename().string()),
                    .linkLayer = firstLine(entry.path() / "link_layer"),
                    .numaNode = numberIn(node),
                    .rate = firstLine(entry.path() / "rate")};
      readGid(port, entry.path(), sources);
      port.obstacle = obstacleOf(port, entry.path(), sources);
      ports.push_back(std::move(port));
    }
  }
  std::ranges::sort(ports, {}, [](const RdmaPort& port) { return std::pair(port.device, port.number); });
  return ports;
}

std::set<int> numaNodesHere() {
  cpu_set_t processors;
  std::set<int> nodes;
  if (::sched_getaffinity(0, sizeof processors, &processors) != 0) return nodes;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node")) continue;
    const std::string list = firstLine(entry.path() / "cpulist");
    for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
      if (CPU_ISSET(processor, &processors) && holds(list, processor))
        nodes.insert(numberIn(std::string_view(name).substr(4)));
    }
  }
  return nodes;
}

std::vector<RdmaPort> nearestPorts(std::vector<RdmaPort> ports, const std::set<int>& numaNodes) {
  std::erase_if(ports, [](const RdmaPort& port) { return !port.obstacle.empty(); });
  const auto isNear = [&](const RdmaPort& port) {
    return port.numaNode < 0 || numaNodes.empty() || numaNodes.contains(port.numaNode);
  };
  if (std::ranges::any_of(ports, isNear)) std::erase_if(ports, [&](const RdmaPort& port) { return !isNear(port); });
  if (ports.empty()) return ports;
  const RdmaPort best = *std::ranges::max_element(ports, {}, gigabitsOf);
  if (best.fabric == kDefaultFabric) return {best};
  std::erase_if(
      ports, [&](const RdmaPort& port) { return gigabitsOf(port) < gigabitsOf(best) || port.fabric != best.fabric; });
  return ports;
}

RdmaPort nearestPort(int localIndex, const std::string& fabric) {
  return nearestPort(rdmaPorts(), numaNodesHere(), localIndex, fabric);
}

RdmaPort nearestPort(std::vector<RdmaPort> ports, const std::set<int>& numaNodes, int localIndex,
                     const std::string& fabric) {
  std::erase_if(ports, [&](const RdmaPort& port) { return port.fabric != fabric; });
  const std::vector<RdmaPort> nearest = nearestPorts(std::move(ports), numaNodes);
  check(!nearest.empty(), ErrorKind::Configuration, "no port of an RDMA device on the fabric '", fabric,
        "' can be used any more; look at rdma link");
  return nearest[static_cast<std::size_t>(localIndex) % nearest.size()];
}

PlaceOnMachine& PlaceOnMachine::ofThisProcess() {
  static PlaceOnMachine place;
  return place;
}

int PlaceOnMachine::in(std::uint32_t ranksHere, std::uint32_t index, int globalRank) {
  constexpr unsigned kIndexBits = 32;
  const auto ranksOf = [](std::uint64_t one) { return one >> kIndexBits; };
  const std::uint64_t here = std::uint64_t{ranksHere} << kIndexBits | index;
  std::uint64_t best = best_;
  while (ranksHere > 1 && ranksOf(here) > ranksOf(best) && !best_.compare_exchange_weak(best, here)) continue;
  best = best_;
  return best == 0 ? globalRank : static_cast<int>(best & 0xFFFF'FFFF);
}

RdmaOffer verbsOffer(int peers, std::uint64_t stagingBytes) {
  const std::vector<RdmaPort> ports = rdmaPorts();
  return verbsOffer(ports, numaNodesHere(), ports.empty() ? RdmaRights() : rdmaRights(), peers, stagingBytes);
}

RdmaOffer verbsOffer(const std::vector<RdmaPort>& ports, const std::set<int>& numaNodes, const RdmaRights& rights,
                     int peers, std::uint64_t stagingBytes) {
  if (ports.empty()) return {{}, {}, "no InfiniBand or RoCE device is here"};
  if (!rights.libraryLoads) return {{}, ports[0].fabric, "libibverbs.so.1 can't be loaded; install rdma-core"};
  const std::vector<RdmaPort> nearest = nearestPorts(ports, numaNodes);
  if (nearest.empty()) return {{}, ports[0].fabric, concat(ports[0].name(), " can't be used: ", ports[0].obstacle)};
  const std::string& fabric = nearest[0].fabric;
  const std::uint64_t needed = stagingBytes + VerbsEndpoint::slotBytesFor(static_cast<std::size_t>(peers)) +
                               kQueueBytesAnyway + kQueueBytesPerPeer * static_cast<std::uint64_t>(peers);
  if (const std::string why = LockableMemory::obstacle(rights.lockable, needed, rdmaUse(peers)); !why.empty())
    return {{}, fabric, why};
  const auto isListed = [&](const RdmaPort& port) { return std::ranges::count(rights.devices, port.device) > 0; };
  const auto missing = std::ranges::find_if_not(nearest, isListed);
  if (missing != nearest.end()) {
    return {{}, fabric, concat("libibverbs can't use ", missing->device, ": install its driver (ibverbs-providers)")};
  }
  return {nearest[0].device, fabric, {}, needed};
}

}  // namespace fairring
