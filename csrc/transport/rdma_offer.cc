#include "transport/rdma_offer.h"

#include <dlfcn.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/error.h"

namespace fairring {

namespace {

// TensorPipe locks two pairs of 2 MiB rings per peer (8 MiB per peer was measured on soft-RoCE); a card's queues come
// on top.
constexpr std::uint64_t kLockedBytesPerPeer = 12 << 20;
constexpr std::uint64_t kLockedBytesAnyway = 16 << 20;

// Those of other groups of this process, say.
std::uint64_t pinnedBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmPin:") continue;
    std::uint64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes << 10;
  }
  return 0;
}

std::optional<std::uint64_t> lockableBytes() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> capabilities{};
  const bool mayLockAll = ::syscall(SYS_capget, &header, capabilities.data()) == 0 &&
                          (capabilities[0].effective & (1U << CAP_IPC_LOCK)) != 0;
  rlimit limit{};
  if (mayLockAll || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const std::uint64_t locked = pinnedBytes();
  return limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, locked);
}

}  // namespace

RdmaRights rdmaRights() {
  RdmaRights rights{.libraryLoads = false, .first = {}, .lockableBytes = lockableBytes(), .devices = {}};
  // Never closed: TensorPipe opens it too, and drivers are hardly tested for being unloaded.
  void* const library = ::dlopen("libibverbs.so.1", RTLD_LOCAL | RTLD_LAZY);
  if (library == nullptr) return rights;
  const auto list = reinterpret_cast<void** (*)(int*)>(::dlsym(library, "ibv_get_device_list"));
  const auto name = reinterpret_cast<const char* (*)(void*)>(::dlsym(library, "ibv_get_device_name"));
  const auto free = reinterpret_cast<void (*)(void**)>(::dlsym(library, "ibv_free_device_list"));
  rights.libraryLoads = list != nullptr && name != nullptr && free != nullptr;
  if (!rights.libraryLoads) return rights;
  int count = 0;
  void** const found = list(&count);
  if (found == nullptr) return rights;
  for (int i = 0; i < count; ++i) rights.devices.emplace_back(name(found[i]));
  if (count > 0) rights.first = rights.devices[0];
  free(found);
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
  if (rights.lockableBytes && *rights.lockableBytes < needed) {
    return {{},
            taken->fabric,
            concat("this process may lock ", *rights.lockableBytes, " B of memory, and RDMA with ", peers,
                   " peer(s) wants up to ", needed, " B; set ulimit -l unlimited, or give the container CAP_IPC_LOCK")};
  }
  return {taken->name, taken->fabric, {}};
}

}  // namespace fairring
