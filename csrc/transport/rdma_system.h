// Readers of what the system says of RDMA devices, in files (RdmaSources). Texts are empty where it says nothing. Any
// thread.
#pragma once

#include <filesystem>
#include <string>

#include "transport/rdma_devices.h"

namespace fairring {

std::string firstLine(const std::filesystem::path& file);
std::string stateIn(const std::filesystem::path& file);  // "4: ACTIVE" as "ACTIVE"
// Why this process can't open the device's node, and the remedy; empty if it can.
std::string nodeObstacle(const std::string& device, const RdmaSources& sources);
std::string withoutColons(std::string gid);  // in the form of /proc/net/if_inet6
bool hasAddress(const std::string& netdev, const std::string& gid, const std::filesystem::path& addresses);
// "10.77.0.0/24": that of the interface's IPv4 address, if one is given, else of its first; empty if it has none.
std::string networkOf(const std::string& netdev, const std::string& address = {});

}  // namespace fairring
