// The RDMA that this process could offer the rails: a device that works, or the obstacle. All ranks are told before any
// of them asks TensorPipe. TensorPipe takes libibverbs' first device, regardless of the others, and ends the process if
// it may not lock its rings. Any thread; reads the present state and keeps nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/lockable_memory.h"
#include "transport/rdma_devices.h"

namespace fairring {

struct RdmaRights {           // of this process
  bool libraryLoads = false;  // libibverbs.so.1
  // The device that libibverbs lists first. It need not be the first by name; a device without a device node is left
  // out.
  std::string first;
  LockableMemory::Left lockable = {};
  std::vector<std::string> devices = {};  // those that libibverbs lists
};

RdmaRights rdmaRights();

struct RdmaOffer {
  std::string device;             // the device to be used; empty if there is none
  std::string fabric;             // of that device or, if none works, of any present one; empty: there is no device
  std::string obstacle;           // the obstacle and the remedy; empty if it can be used
  std::uint64_t lockedBytes = 0;  // the most that it will lock, if it can be used
};

// The offer of a rank with that many peers on its rails: by the state of this machine and process, or by a given one.
RdmaOffer rdmaOffer(int peers);
RdmaOffer rdmaOffer(const std::vector<RdmaDevice>& devices, const RdmaRights& rights, int peers);

// Why TensorPipe's device can't be used, and the remedy, however much memory may be locked; empty if it can.
std::string rdmaDeviceObstacle();

// For which memory is locked, in words.
inline std::string rdmaUse(int peers) { return concat("RDMA with ", peers, " peer(s)"); }

std::uint64_t rdmaLockedBytes(int peers);  // the most that TensorPipe's ibv wants to lock

}  // namespace fairring
