// The RDMA devices of this machine, and why each can or can't carry the rails: through TensorPipe's ibv, which takes
// port 1 and GID 0, and ends the process or waits for ever if one of them does not work. So everything is read from the
// system before TensorPipe is asked (see rdma_offer.h).
// Any thread; reads the present state and keeps nothing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fairring {

struct RdmaDevice {
  std::string name;       // "mlx5_0"
  std::string driver;     // "mlx5_core"; empty if there is no hardware, as with soft-RoCE
  std::string linkLayer;  // "InfiniBand", or "Ethernet": RoCE
  std::string netdev;     // RoCE only: its network interface
  std::string rate;       // "100 Gb/sec (4X EDR)"
  std::string gid;        // port 1's GID 0
  std::string fabric;     // equal on two machines whose devices reach each other, as far as can be told from here
  std::string obstacle;   // why the device can't be used, and the remedy; empty if it can
};

struct RdmaSources {  // where the system describes them
  std::filesystem::path classes = "/sys/class";
  std::filesystem::path nodes = "/dev/infiniband";
  std::filesystem::path addresses = "/proc/net/if_inet6";
};

std::vector<RdmaDevice> rdmaDevices(const RdmaSources& sources = {});  // by name

}  // namespace fairring
