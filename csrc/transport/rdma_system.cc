#include "transport/rdma_system.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <memory>
#include <system_error>

#include "base/error.h"

namespace fairring {

namespace fs = std::filesystem;

std::string firstLine(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::string stateIn(const fs::path& file) {
  const std::string line = firstLine(file);
  const std::size_t colon = line.find(": ");
  return colon == std::string::npos ? line : line.substr(colon + 2);
}

namespace {

// The node through which programs reach the device: "uverbs0". Empty if the kernel offers none.
std::string nodeOf(const std::string& device, const RdmaSources& sources) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(sources.classes / "infiniband_verbs", ignored)) {
    if (firstLine(entry.path() / "ibdev") == device) return entry.path().filename();
  }
  return {};
}

}  // namespace

std::string nodeObstacle(const std::string& device, const RdmaSources& sources) {
  const std::string node = nodeOf(device, sources);
  if (node.empty()) return "the kernel offers it to no program; load the module ib_uverbs";
  const fs::path path = sources.nodes / node;
  if (::access(path.c_str(), R_OK | W_OK) == 0) return {};
  return concat(path.string(), " can't be opened; give the container that device, or this user the right");
}

std::string withoutColons(std::string gid) {
  std::erase(gid, ':');
  return gid;
}

bool hasAddress(const std::string& netdev, const std::string& gid, const fs::path& addresses) {
  constexpr unsigned kTentative = 0x40;
  std::ifstream lines(addresses);
  std::string address;
  std::string index;
  std::string prefix;
  std::string scope;
  std::string flags;
  std::string name;
  while (lines >> address >> index >> prefix >> scope >> flags >> name) {
    if (name != netdev || address != withoutColons(gid)) continue;
    return (std::stoul(flags, nullptr, 16) & kTentative) == 0;
  }
  return false;
}

std::string networkOf(const std::string& netdev, const std::string& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (netdev != entry->ifa_name || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const auto mask = reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr;
    in_addr network = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &network, text.data(), text.size());
    if (!address.empty() && address != text.data()) continue;
    network.s_addr &= mask;
    ::inet_ntop(AF_INET, &network, text.data(), text.size());
    return concat(text.data(), "/", std::popcount(mask));
  }
  return {};
}

}  // namespace fairring
