// Level 0 on CUDA devices: the ranks of one machine reduce and gather slices among themselves by NCCL. A rank that is
// alone on its machine copies.
//
// NCCL scatters equal shards of one array. Where a slice's cuts do not give these, or tensors share the slice that are
// not reduced alike, each shard of each is reduced to its owner, and shards are broadcast, all in one group. Which
// calls of NCCL's a slice takes follows from its layout and what is reduced how: alike on all ranks of the machine.
// A tensor that fills its slice is read, and written, where it lies. Where several share it, or it has a scale, they
// are first put into the image, scaled in fp32 by our kernel, and NCCL works there in place. What NCCL itself computes
// (its order within the machine, its rounding) is its own for its version and settings.
// A slice of blocks has them in the order of shards, users' memory in that of ranks. Where the slice has whole blocks,
// those that come from the machine's ranks for one of another machine stand together there, and are gathered into
// place; otherwise blocks are copied between both orders.
//
// Reduce-scatters and all-gathers have a communicator each, since those of different slices are under way at once, in
// different streams. Owned by the accelerator; its threads.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>

#include "device/nccl_communicator.h"
#include "device/nccl_patience.h"
#include "exchange/exchange.h"
#include "kernels/device_sums.h"

namespace fairring {

class LevelZero {
 public:
  // fromFirst: gives every rank of the machine the text of its first one. Waits for the machine's ranks, no longer than
  // the patience says: a thread of its own is in NCCL meanwhile. Each call of NCCL's has been made once then, with few
  // bytes. `sums`, which outlive this, scale and copy.
  LevelZero(const NcclPlace& place, const std::function<std::string(const std::string&)>& fromFirst,
            const NcclPatience& patience, const DeviceSums& sums);

  // NCCL connects for each of its algorithms, so the first call of a size for which it takes another waits for the
  // machine's ranks again, until abort().
  void reduceScatter(cudaStream_t stream, const Slice& slice);
  void allGather(cudaStream_t stream, const Slice& slice);
  void load(cudaStream_t stream, const Slice& slice) const;
  void store(cudaStream_t stream, const Slice& slice) const;
  void abort() noexcept;

 private:
  void connect(const std::string& forScatters, const std::string& forGathers);
  void callFirst(std::byte* all, std::byte* mine, cudaStream_t stream);
  void await(std::future<void>& connected, const NcclPatience& patience);
  std::string breakOff(std::future<void>& connected);
  void pack(cudaStream_t stream, const Slice& slice) const;
  void scale(cudaStream_t stream, const Slice& slice, const Reduction& reduction) const;
  void scatter(cudaStream_t stream, const Slice& slice, const std::byte* from);
  void gather(cudaStream_t stream, const Slice& slice, std::byte* to);

  NcclPlace place_;
  const DeviceSums& sums_;
  std::shared_ptr<std::byte> firsts_;  // of the first calls; kept, since giving memory back may wait for the device
  std::unique_ptr<NcclCommunicator> scatters_;  // none of a single rank
  std::unique_ptr<NcclCommunicator> gathers_;
};

}  // namespace fairring
