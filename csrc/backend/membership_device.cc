// What Membership does for the group's calls on a device: the ranks of a machine make its level 0 together, and find
// each other through the store, under "device/<the machine's first rank>/<how many texts there were before>".
#include <algorithm>
#include <utility>

#include "backend/cuda_device.h"
#include "backend/membership.h"

namespace fairring {

void Membership::equip(GroupSettings& settings) {
  settings.makeAccelerator = [this](int device, const auto& ranks, auto timeout) {
    return makeDevice(device, ranks, timeout);
  };
  settings.offLoop = [this](auto task) { completion().post(std::move(task)); };
}

std::unique_ptr<Accelerator> Membership::makeDevice(int device, const std::vector<int>& machineRanks,
                                                    std::chrono::milliseconds timeout) {
  const auto self = std::ranges::find(machineRanks, options_.rank);
  const auto store = store_->clone();  // waiting on a store keeps all others off that store's connection
  store->setTimeout(timeout);
  const bool first = self == machineRanks.begin();
  int texts = 0;
  AcceleratorPlace place{.device = device,
                         .rank = options_.rank,
                         .index = static_cast<int>(self - machineRanks.begin()),
                         .count = static_cast<int>(machineRanks.size()),
                         .fromFirst = nullptr,
                         .timeout = timeout};
  place.fromFirst = [&](const std::string& mine) {
    const std::string where = bootstrap_->key(concat("device/", machineRanks.front(), "/", texts++));
    try {
      if (first) store->set(where, mine);
      return first ? mine : store->get_to_str(where);
    } catch (const std::exception& e) {
      throw Failure(
          makeError(ErrorKind::Connection, "rank ", options_.rank, " of group ", options_.name,
                    ": the ranks of its machine did not meet for their first call on CUDA tensors: ", e.what()));
    }
  };
  return makeAccelerator(place);
}

}  // namespace fairring
