#include "transport/rdma_offer.h"

#include <algorithm>

#include "base/error.h"
#include "transport/verbs_library.h"

namespace fairring {

namespace {

// TensorPipe locks two pairs of 2 MiB rings per peer (8 MiB per peer was measured on soft-RoCE); a card's queues come
// on top.
constexpr std::uint64_t kLockedBytesPerPeer = 12 << 20;
constexpr std::uint64_t kLockedBytesAnyway = 16 << 20;

}  // namespace

RdmaRights rdmaRights() {
  const VerbsLibrary* const library = VerbsLibrary::load();
  RdmaRights rights{
      .libraryLoads = library != nullptr, .first = {}, .lockable = LockableMemory::ofThisProcess().left()};
  if (library == nullptr) return rights;
  int count = 0;
  verbs::Device** const found = library->getDevices(&count);
  if (found == nullptr) return rights;
  for (int i = 0; i < count; ++i) rights.devices.emplace_back(library->nameOf(found[i]));
  if (count > 0) rights.first = rights.devices[0];
  library->freeDevices(found);
  return rights;
}

std::uint64_t rdmaLockedBytes(int peers) {
  return kLockedBytesAnyway + kLockedBytesPerPeer * static_cast<std::uint64_t>(peers);
}

// libibverbs is only asked if there is a device: else it would complain on stderr that it is not set up.
RdmaOffer rdmaOffer(int peers) {
  const std::vector<RdmaDevice> devices = rdmaDevices();
  return rdmaOffer(devices, devices.empty() ? RdmaRights() : rdmaRights(), peers);
}

std::string rdmaDeviceObstacle() {
  const std::vector<RdmaDevice> devices = rdmaDevices();
  RdmaRights rights = devices.empty() ? RdmaRights() : rdmaRights();
  rights.lockable = {};
  return rdmaOffer(devices, rights, 0).obstacle;
}

RdmaOffer rdmaOffer(const std::vector<RdmaDevice>& devices, const RdmaRights& rights, int peers) {
  if (devices.empty()) return {{}, {}, "no InfiniBand or RoCE device is here"};
  if (!rights.libraryLoads) return {{}, devices[0].fabric, "libibverbs.so.1 can't be loaded; install rdma-core"};
  const auto taken = std::ranges::find(devices, rights.first, &RdmaDevice::name);
  if (taken == devices.end()) {
    const std::string& seen = devices[0].obstacle;
    const std::string why = seen.empty() ? "install its driver (ibverbs-providers)" : seen;
    return {{}, devices[0].fabric, concat("libibverbs can't use ", devices[0].name, ": ", why)};
  }
  if (!taken->obstacle.empty()) {
    const bool others = std::ranges::any_of(devices, [](const RdmaDevice& device) { return device.obstacle.empty(); });
    return {{},
            taken->fabric,
            concat(taken->name, " can't be used: ", taken->obstacle,
                   others ? "; others work, but TensorPipe takes libibverbs' first: to hide that one, "
                            "remove its node from the container"
                          : "")};
  }
  const std::uint64_t needed = rdmaLockedBytes(peers);
  if (const std::string why = LockableMemory::obstacle(rights.lockable, needed, rdmaUse(peers)); !why.empty())
    return {{}, taken->fabric, why};
  return {taken->name, taken->fabric, {}, needed};
}

}  // namespace fairring
