#include "transport/rdma_devices.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "transport/rdma_system.h"

namespace fairring {

namespace {

namespace fs = std::filesystem;

// GID 0 is link-local with RoCE: it reaches the interface's own network and no further. With InfiniBand its first half
// is the subnet's.
std::string fabricOf(const RdmaDevice& device) {
  if (device.linkLayer != "Ethernet") return concat(device.linkLayer, " ", device.gid.substr(0, 19));
  const std::string network = networkOf(device.netdev);
  return network.empty() ? "RoCE" : concat("RoCE ", network);
}

std::string gidObstacle(const RdmaDevice& device, const std::string& type, const RdmaSources& sources) {
  const std::string hexadecimal = withoutColons(device.gid);
  if (std::ranges::all_of(hexadecimal, [](char digit) { return digit == '0'; })) {
    return "its GID 0 is empty; give its interface a link-local IPv6 address";
  }
  if (device.linkLayer != "Ethernet" || type != "RoCE v2" || hasAddress(device.netdev, device.gid, sources.addresses)) {
    return {};
  }
  return concat("its GID 0, ", device.gid, ", is no IPv6 address of ", device.netdev, ", so its packets reach nobody; ",
                "turn IPv6 on there (sysctl net.ipv6.conf.", device.netdev, ".disable_ipv6=0)");
}

std::string obstacleOf(const RdmaDevice& device, const RdmaSources& sources) {
  const fs::path home = sources.classes / "infiniband" / device.name;
  const fs::path port = home / "ports/1";
  const std::string type = stateIn(home / "node_type");
  if (device.driver == "efa" || type != "CA") {
    return concat("it is no InfiniBand or RoCE device (its type is '", type, "', its driver '", device.driver,
                  "'), and TensorPipe speaks no other");
  }
  std::error_code ignored;
  if (!fs::exists(port, ignored)) return "it has no port 1, and TensorPipe takes no other";
  const std::string state = stateIn(port / "state");
  if (state != "ACTIVE") {
    return concat("its port 1 is ", state, " (", stateIn(port / "phys_state"),
                  "); see to its cable, its interface (ip link set up) or its subnet manager");
  }
  if (std::string text = gidObstacle(device, firstLine(port / "gid_attrs/types/0"), sources); !text.empty())
    return text;
  return nodeObstacle(device.name, sources);
}

}  // namespace

std::vector<RdmaDevice> rdmaDevices(const RdmaSources& sources) {
  std::vector<RdmaDevice> devices;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(sources.classes / "infiniband", ignored)) {
    const fs::path port = entry.path() / "ports/1";
    RdmaDevice device{.name = entry.path().filename(),
                      .driver = fs::read_symlink(entry.path() / "device/driver", ignored).filename(),
                      .linkLayer = firstLine(port / "link_layer"),
                      .netdev = firstLine(port / "gid_attrs/ndevs/0"),
                      .rate = firstLine(port / "rate"),
                      .gid = firstLine(port / "gids/0"),
                      .fabric = {},
                      .obstacle = {}};
    device.fabric = fabricOf(device);
    device.obstacle = obstacleOf(device, sources);
    devices.push_back(std::move(device));
  }
  std::ranges::sort(devices, {}, &RdmaDevice::name);
  return devices;
}

}  // namespace fairring
