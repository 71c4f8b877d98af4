// Rails that are NCCL's: what goes between machines is sent and received by it, from device to device, over whatever
// network it knows, with GPUDirect where that has it. All ranks of the group are in one communicator for ways down and
// one for ways up: of the calls of one NCCL begins none before the last is over, whatever their streams, and a slice
// that comes down need not wait for one that goes up. NCCL connects two ranks at their first exchange, which waits for
// both. Owned by the accelerator; its threads.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/accelerator.h"
#include "device/nccl_communicator.h"

namespace fairring {

class NcclRails {
 public:
  // fromFirst: gives every rank of the group the text of rank 0. Waits for all of them.
  NcclRails(const NcclPlace& place, const std::function<std::string(const std::string&)>& fromFirst);

  void exchange(cudaStream_t stream, Accelerator::Way way, std::span<const Transfer> transfers);
  std::vector<NcclCommunicator*> communicators() const { return {down_.get(), up_.get()}; }

 private:
  std::unique_ptr<NcclCommunicator> down_;
  std::unique_ptr<NcclCommunicator> up_;
};

}  // namespace fairring
