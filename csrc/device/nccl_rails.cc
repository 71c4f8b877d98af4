#include "device/nccl_rails.h"

#include <algorithm>

namespace fairring {

NcclRails::NcclRails(const NcclPlace& place, const std::function<std::string(const std::string&)>& fromFirst)
    : down_(std::make_unique<NcclCommunicator>(
          place, fromFirst(place.rank == 0 ? NcclCommunicator::makeId() : std::string()))),
      up_(down_->split()) {}

void NcclRails::exchange(cudaStream_t stream, Accelerator::Way way, std::span<const Transfer> transfers) {
  const auto isEmpty = [](const Transfer& one) { return one.sendBytes == 0 && one.receiveBytes == 0; };
  if (std::ranges::all_of(transfers, isEmpty)) return;
  NcclCommunicator& communicator = way == Accelerator::Way::Down ? *down_ : *up_;
  communicator.enqueue("ncclSend and ncclRecv", [&](ncclComm_t comm) {
    ncclResult_t result = ncclSuccess;
    const auto succeeded = [&] { return result == ncclSuccess || result == ncclInProgress; };
    for (const Transfer& one : transfers) {
      if (one.sendBytes > 0) result = ncclSend(one.sendFrom, one.sendBytes, ncclUint8, one.peer, comm, stream);
      if (!succeeded()) return result;
      if (one.receiveBytes > 0) result = ncclRecv(one.receiveAt, one.receiveBytes, ncclUint8, one.peer, comm, stream);
      if (!succeeded()) return result;
    }
    return result;
  });
}

}  // namespace fairring
