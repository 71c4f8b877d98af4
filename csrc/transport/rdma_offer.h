// The RDMA that this process could offer the rails: a device that works, or the obstacle. All ranks are told before any
// of them asks TensorPipe. TensorPipe takes libibverbs' first device, whatever the others are, and ends the
// process where it may not lock its rings. Any thread; reads what is there at that moment and keeps nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/rdma_devices.h"

namespace fairring {

struct RdmaRights {           // of this process
  bool libraryLoads = false;  // libibverbs.so.1
  // The device that libibverbs lists first. It need not be the first by name, and one without a device node is left
  // out.
  std::string first;
  std::optional<std::uint64_t> lockableBytes;  // none: no limit
};

RdmaRights rdmaRights();

struct RdmaOffer {
  std::string device;    // that would be taken; empty where none would
  std::string fabric;    // of that device or, where none works, of one that is there; empty: no device at all
  std::string obstacle;  // what stands against it, and what to do; empty where it can be used
};

// For a rank with so many peers on its rails: of this machine and process, or of those given.
RdmaOffer rdmaOffer(int peers);
RdmaOffer rdmaOffer(const std::vector<RdmaDevice>& devices, const RdmaRights& rights, int peers);

std::uint64_t rdmaLockedBytes(int peers);  // that TensorPipe's ibv wants to lock, at most

}  // namespace fairring
