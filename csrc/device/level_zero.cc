#include "device/level_zero.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <future>

#include "base/cuda_error.h"
#include "base/cuda_memory.h"
#include "base/cuda_stream.h"
#include "device/level_zero_copies.h"
#include "exchange/dense_body.h"

namespace fairring {
namespace {

constexpr std::size_t kFirstBytes = 64;  // of each rank, in the first calls

// DeviceSums has no others.
ncclDataType_t ncclTypeOf(DType dtype) {
  switch (dtype) {
    case DType::Float64: return ncclFloat64;
    case DType::BFloat16: return ncclBfloat16;
    case DType::Float16: return ncclFloat16;
    default: return ncclFloat32;
  }
}

bool hasEqualShards(const Rail& rail) {
  const std::uint64_t size = rail.shards.front().size();
  for (std::size_t i = 0; i < rail.shards.size(); ++i) {
    if (rail.shards[i].size() != size || rail.shards[i].begin != rail.range.begin + i * size) return false;
  }
  return true;
}

// The tensor that fills the slice and lies in one piece here; null where there is none.
const Portion* soleTensor(const Slice& slice, const Rail& rail) {
  if (slice.portions.size() != 1 || slice.portions.front().to == nullptr) return nullptr;
  const Portion& portion = slice.portions.front();
  return portion.begin == rail.range.begin && portion.end() == rail.range.end ? &portion : nullptr;
}

// What all of the slice is reduced by; null where its tensors are not reduced alike.
const Reduction* reductionOfAll(const Slice& slice) {
  if (slice.portions.empty()) return nullptr;
  const Reduction& first = slice.portions.front().reduction;
  const auto isAlike = [&first](const Portion& portion) { return portion.reduction == first; };
  return std::ranges::all_of(slice.portions, isAlike) ? &first : nullptr;
}

std::vector<CopiedPiece> piecesIn(const Slice& slice) {
  std::vector<CopiedPiece> pieces;
  for (const Portion& portion : slice.portions) {
    if (portion.from != nullptr)
      pieces.push_back({slice.image + portion.begin, portion.from, portion.end() - portion.begin, portion.tensor});
  }
  return pieces;
}

std::vector<CopiedPiece> piecesOut(const Slice& slice) {
  std::vector<CopiedPiece> pieces;
  for (const Portion& portion : slice.portions) {
    if (portion.to != nullptr)
      pieces.push_back({portion.to, slice.image + portion.begin, portion.end() - portion.begin, portion.tensor});
  }
  return pieces;
}

// What the machine's ranks gather in one call, into one piece of users' memory: the same place of every shard.
struct Column {
  std::uint64_t place;  // in a shard
  std::byte* to;
  std::uint64_t bytes;
};

constexpr std::size_t kMostColumns = 16;  // a call of NCCL's for each

// The columns of a slice of blocks; none where the blocks don't stand in columns. All ranks get the same answer, since
// their users' memory is laid out alike.
std::vector<Column> columnsOf(const Slice& slice, const Rail& rail) {
  const std::size_t shards = rail.shards.size();
  const std::size_t count = slice.portions.size() / shards;
  if (slice.plan->front().verb != Verb::Load || !hasEqualShards(rail)) return {};
  if (slice.portions.size() % shards != 0 || count == 0 || count > kMostColumns) return {};
  std::vector<Column> columns;
  for (std::size_t i = 0; i < slice.portions.size(); ++i) {
    const Portion& portion = slice.portions[i];
    const Range& shard = rail.shards[i / count];
    if (portion.begin < shard.begin || portion.end() > shard.end) return {};
    const Column here{portion.begin - shard.begin, portion.to, portion.end() - portion.begin};
    if (i < count) {
      columns.push_back(here);
      continue;
    }
    const auto& [place, to, bytes] = columns[i % count];
    if (here.place != place || here.bytes != bytes || here.to != to + i / count * bytes) return {};
  }
  return columns;
}

bool succeeded(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

}  // namespace

LevelZero::LevelZero(const NcclPlace& place, const std::function<std::string(const std::string&)>& fromFirst,
                     const NcclPatience& patience, const DeviceSums& sums)
    : place_(place), sums_(sums) {
  if (place.ranks == 1) return;
  const auto nextId = [&] { return fromFirst(place.rank == 0 ? NcclCommunicator::makeId() : std::string()); };
  const std::string forScatters = nextId();
  const std::string forGathers = nextId();
  scatters_ = std::make_unique<NcclCommunicator>(place);
  gathers_ = std::make_unique<NcclCommunicator>(place);
  std::future<void> connected = std::async(std::launch::async, [&] { connect(forScatters, forGathers); });
  await(connected, patience);
}

// One of each call, since NCCL connects ranks, and takes memory, when it is first asked for something.
void LevelZero::connect(const std::string& forScatters, const std::string& forGathers) {
  const CurrentDevice current(place_.device);
  const auto ranks = static_cast<std::size_t>(place_.ranks);
  firsts_ = deviceMemory(2 * ranks * kFirstBytes, place_.device);
  const CudaStream stream(place_.device);
  try {
    scatters_->join(forScatters);
    gathers_->join(forGathers);
    callFirst(firsts_.get(), firsts_.get() + ranks * kFirstBytes, stream.get());
    stream.synchronize();
  } catch (...) {
    abort();  // before the memory goes: what is enqueued may wait for a rank that never comes, and CUDA for that
    throw;
  }
}

void LevelZero::callFirst(std::byte* all, std::byte* mine, cudaStream_t stream) {
  scatters_->enqueue("ncclReduceScatter", [&](ncclComm_t comm) {
    return ncclReduceScatter(all, mine, kFirstBytes, ncclUint8, ncclMax, comm, stream);
  });
  scatters_->enqueue("ncclReduce", [&](ncclComm_t comm) {
    return ncclReduce(all, mine, kFirstBytes, ncclUint8, ncclMax, 0, comm, stream);
  });
  gathers_->enqueue("ncclAllGather",
                    [&](ncclComm_t comm) { return ncclAllGather(mine, all, kFirstBytes, ncclUint8, comm, stream); });
  gathers_->enqueue("ncclBroadcast",
                    [&](ncclComm_t comm) { return ncclBroadcast(mine, all, kFirstBytes, ncclUint8, 0, comm, stream); });
}

void LevelZero::await(std::future<void>& connected, const NcclPatience& patience) {
  constexpr std::chrono::milliseconds kBetweenLooks{10};
  const auto end = std::chrono::steady_clock::now() + patience.timeout;
  const bool isForEver = patience.timeout.count() == 0;
  while (connected.wait_for(kBetweenLooks) != std::future_status::ready) {
    if (patience.hasEnded())
      throw Failure(makeError(ErrorKind::Aborted, breakOff(connected), " because the group had failed"));
    if (!isForEver && std::chrono::steady_clock::now() >= end) {
      throw Failure(makeError(ErrorKind::Timeout, breakOff(connected), " after ", patience.timeout.count(),
                              " ms: a rank has not come that far; look at the others' output, and at NCCL's with ",
                              "NCCL_DEBUG=INFO"));
    }
  }
  connected.get();
}

// Returns what the other thread was in.
std::string LevelZero::breakOff(std::future<void>& connected) {
  abort();
  try {
    connected.get();
  } catch (const Failure& ended) {
    return ended.error().text();
  }
  return concat(place_.who, ": NCCL's first calls between the ", place_.ranks, " ranks of the machine were given up");
}

// Many that are scaled alike are copied first, if that takes fewer launches.
void LevelZero::pack(cudaStream_t stream, const Slice& slice) const {
  const std::vector<CopiedPiece> pieces = piecesIn(slice);
  const LevelZeroCopies copies(pieces);
  const Reduction* all = reductionOfAll(slice);
  if (all != nullptr && copies.calls() + 1 < pieces.size()) {
    copies.enqueue(stream, place_.device);
    return scale(stream, slice, *all);
  }
  for (const Portion& portion : slice.portions) {
    if (portion.from == nullptr) continue;
    const Input input{portion.from, slice.scale};
    sums_.enqueue(portion.reduction.dtype, slice.image + portion.begin, {&input, 1}, portion.elements, stream);
  }
}

// The image, where it lies.
void LevelZero::scale(cudaStream_t stream, const Slice& slice, const Reduction& reduction) const {
  if (slice.scale == 1.0) return;
  const Input image{slice.image, slice.scale};
  sums_.enqueue(reduction.dtype, slice.image, {&image, 1}, slice.layout->bytes / bytesOf(reduction.dtype), stream);
}

void LevelZero::load(cudaStream_t stream, const Slice& slice) const {
  LevelZeroCopies(piecesIn(slice)).enqueue(stream, place_.device);
}

void LevelZero::store(cudaStream_t stream, const Slice& slice) const {
  LevelZeroCopies(piecesOut(slice)).enqueue(stream, place_.device);
}

void LevelZero::reduceScatter(cudaStream_t stream, const Slice& slice) {
  const Rail* rail = machineRail(slice);
  if (rail == nullptr) return;
  assert(static_cast<int>(rail->shards.size()) == place_.ranks && rail->self == place_.rank);
  const Portion* sole = soleTensor(slice, *rail);
  const bool inPlace = sole == nullptr || slice.scale != 1.0 || place_.ranks == 1;
  if (inPlace) pack(stream, slice);
  if (place_.ranks > 1) scatter(stream, slice, inPlace ? slice.image + rail->range.begin : sole->to);
}

// from: the rail's first byte.
void LevelZero::scatter(cudaStream_t stream, const Slice& slice, const std::byte* from) {
  const Rail& rail = *machineRail(slice);
  const auto source = [&](std::uint64_t at) { return from + (at - rail.range.begin); };
  const Reduction* all = reductionOfAll(slice);
  if (all != nullptr && hasEqualShards(rail)) {  // with what pads blocks, and means nothing
    const Range& mine = rail.own();
    const DType dtype = all->dtype;
    return scatters_->enqueue("ncclReduceScatter", [&](ncclComm_t comm) {
      return ncclReduceScatter(from, slice.image + mine.begin, mine.size() / bytesOf(dtype), ncclTypeOf(dtype), ncclSum,
                               comm, stream);
    });
  }
  scatters_->enqueue("ncclReduce", [&](ncclComm_t comm) {
    ncclResult_t result = ncclSuccess;
    for (std::size_t owner = 0; owner < rail.shards.size(); ++owner) {
      for (const Portion& run : joinedWithin(slice.portions, rail.shards[owner])) {
        result = ncclReduce(source(run.begin), slice.image + run.begin, run.elements, ncclTypeOf(run.reduction.dtype),
                            ncclSum, static_cast<int>(owner), comm, stream);
        if (!succeeded(result)) return result;
      }
    }
    return result;
  });
}

void LevelZero::allGather(cudaStream_t stream, const Slice& slice) {
  const Rail* rail = machineRail(slice);
  if (rail == nullptr) return;
  if (place_.ranks == 1) return store(stream, slice);
  if (const auto columns = columnsOf(slice, *rail); !columns.empty()) {
    const std::byte* mine = slice.image + rail->own().begin;
    return gathers_->enqueue("ncclAllGather", [&](ncclComm_t comm) {
      ncclResult_t result = ncclSuccess;
      for (const auto& [place, to, bytes] : columns) {
        result = ncclAllGather(mine + place, to, bytes, ncclUint8, comm, stream);
        if (!succeeded(result)) return result;
      }
      return result;
    });
  }
  const Portion* sole = soleTensor(slice, *rail);
  gather(stream, slice, sole != nullptr ? sole->to : slice.image + rail->range.begin);
  if (sole == nullptr) store(stream, slice);
}

// to: the rail's first byte.
void LevelZero::gather(cudaStream_t stream, const Slice& slice, std::byte* to) {
  const Rail& rail = *machineRail(slice);
  if (hasEqualShards(rail)) {
    const Range& mine = rail.own();
    return gathers_->enqueue("ncclAllGather", [&](ncclComm_t comm) {
      return ncclAllGather(slice.image + mine.begin, to, mine.size(), ncclUint8, comm, stream);
    });
  }
  gathers_->enqueue("ncclBroadcast", [&](ncclComm_t comm) {
    ncclResult_t result = ncclSuccess;
    for (std::size_t owner = 0; owner < rail.shards.size(); ++owner) {
      const Range& shard = rail.shards[owner];
      if (shard.size() == 0) continue;
      result = ncclBroadcast(slice.image + shard.begin, to + (shard.begin - rail.range.begin), shard.size(), ncclUint8,
                             static_cast<int>(owner), comm, stream);
      if (!succeeded(result)) return result;
    }
    return result;
  });
}

void LevelZero::abort() noexcept {
  if (gathers_ == nullptr) return;
  const std::array both{scatters_.get(), gathers_.get()};
  NcclCommunicator::abortTogether(both);
}

}  // namespace fairring
