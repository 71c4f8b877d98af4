// Level 0 on CUDA devices, without any: NCCL, CUDA and the kernels are replaced by their effects on memory of the host.
// All ranks of a machine are here; their requests to NCCL are carried out when the last one has come, and must match.
#include "device/level_zero.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda_error.h"
#include "base/cuda_memory.h"
#include "base/cuda_stream.h"
#include "device/cuda_accelerator.h"
#include "device/level_zero_copies.h"
#include "exchange/portion.h"
#include "plan/blocks.h"
#include "plan/topology.h"

namespace fairring {
namespace {

struct Asked {  // of NCCL, by one rank
  const char* what;
  const std::byte* send;
  std::byte* receive;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;

  bool fits(const Asked& other) const {
    return std::strcmp(what, other.what) == 0 && count == other.count && type == other.type && op == other.op &&
           root == other.root;
  }
};

int currentRank = 0;
std::map<int, std::vector<Asked>> asked;    // by rank
std::vector<std::function<void()>> copies;  // that stand in streams behind what was asked
std::map<std::string, int> counted;         // calls of NCCL and copies, of rank 0

void count(const char* what) {
  if (currentRank == 0) ++counted[what];
}

void ask(const Asked& one) {
  asked[currentRank].push_back(one);
  count(one.what);
}

// Behind the requests to NCCL, if they are not carried out yet.
void copyInOrder(std::function<void()> copy) {
  if (asked.contains(currentRank)) {
    copies.push_back(std::move(copy));
  } else {
    copy();
  }
}

constexpr std::size_t kFloatBytes = 4;

std::size_t bytesOfType(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclFloat64 ? 8 : kFloatBytes; }

template <class T>
void reduceInto(std::vector<std::byte>& result, const std::vector<const std::byte*>& inputs, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T value{};
    for (const std::byte* input : inputs) {
      T one;
      std::memcpy(&one, input + i * sizeof(T), sizeof(T));
      value += one;
    }
    std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
  }
}

std::vector<std::byte> reduced(std::size_t call, std::size_t count, std::size_t offset) {
  const Asked& first = asked[0][call];
  std::vector<const std::byte*> inputs;
  for (const auto& [rank, calls] : asked) inputs.push_back(calls[call].send + offset);
  std::vector<std::byte> result(count * bytesOfType(first.type));
  if (first.type == ncclFloat32) {
    reduceInto<float>(result, inputs, count);
  } else {
    reduceInto<double>(result, inputs, count);
  }
  return result;
}

void carryOutOne(std::size_t call) {
  const Asked first = asked[0][call];
  const std::string what = first.what;
  const std::size_t bytes = first.count * bytesOfType(first.type);
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> results;  // inputs may be outputs
  for (const auto& [rank, calls] : asked) {
    const Asked& mine = calls[call];
    const auto place = static_cast<std::size_t>(rank);
    if (what == "ReduceScatter") results.emplace_back(mine.receive, reduced(call, first.count, place * bytes));
    if (what == "Reduce" && rank == first.root) results.emplace_back(mine.receive, reduced(call, first.count, 0));
    for (const auto& [other, theirs] : asked) {
      const std::byte* from = theirs[call].send;
      const auto at = static_cast<std::size_t>(other) * bytes;
      if (what == "AllGather") results.emplace_back(mine.receive + at, std::vector(from, from + bytes));
      if (what == "Broadcast" && other == first.root)
        results.emplace_back(mine.receive, std::vector(from, from + bytes));
    }
  }
  for (const auto& [to, result] : results) std::ranges::copy(result, to);
}

void carryOut() {
  for (const auto& [rank, calls] : asked) {
    ASSERT_EQ(calls.size(), asked[0].size());
    for (std::size_t i = 0; i < calls.size(); ++i) ASSERT_TRUE(calls[i].fits(asked[0][i])) << "rank " << rank;
  }
  const std::size_t calls = asked[0].size();
  for (std::size_t call = 0; call < calls; ++call) carryOutOne(call);
  asked.clear();
  for (const auto& copy : copies) copy();
  copies.clear();
}

}  // namespace

// --- what stands in for NCCL and CUDA

std::string NcclCommunicator::makeId() { return "id"; }
NcclCommunicator::NcclCommunicator(NcclPlace place, const std::string&) : place_(std::move(place)) {}
NcclCommunicator::~NcclCommunicator() = default;
std::unique_ptr<NcclCommunicator> NcclCommunicator::split() {
  return std::unique_ptr<NcclCommunicator>(new NcclCommunicator(place_));
}
void NcclCommunicator::enqueue(const char*, const Calls& calls) { EXPECT_EQ(calls(nullptr), ncclSuccess); }
void NcclCommunicator::abortTogether(std::span<NcclCommunicator* const> communicators) noexcept {
  for (NcclCommunicator* one : communicators) one->aborted_ = true;
}

CurrentDevice::CurrentDevice(int device) : before_(device) {}
CurrentDevice::~CurrentDevice() { before_ = -1; }
void checkCuda(cudaError_t, const char*, int) {}
std::shared_ptr<std::byte> deviceMemory(std::uint64_t bytes, int) {
  return {new std::byte[bytes], std::default_delete<std::byte[]>()};
}
CudaStream::CudaStream(int device) : device_(device) {}
CudaStream::~CudaStream() { stream_ = nullptr; }
void callFrom(cudaStream_t, std::function<void()> function, int) { std::exchange(function, {})(); }

DeviceSums::DeviceSums(int) {}
void DeviceSums::enqueue(DType dtype, void* out, std::span<const Input> inputs, std::uint64_t elements,
                         cudaStream_t) const {
  reduce({.dtype = dtype}, out, inputs, elements);
}

ncclResult_t (*const ncclReduceScatter)(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                        cudaStream_t) = [](const void* send, void* receive, std::size_t count,
                                                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t,
                                                           cudaStream_t) {
  ask({"ReduceScatter", static_cast<const std::byte*>(send), static_cast<std::byte*>(receive), count, type, op, 0});
  return ncclSuccess;
};
ncclResult_t (*const ncclReduce)(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                                 cudaStream_t) = [](const void* send, void* receive, std::size_t count,
                                                    ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t,
                                                    cudaStream_t) {
  ask({"Reduce", static_cast<const std::byte*>(send), static_cast<std::byte*>(receive), count, type, op, root});
  return ncclSuccess;
};
ncclResult_t (*const ncclAllGather)(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t,
                                    cudaStream_t) = [](const void* send, void* receive, std::size_t count,
                                                       ncclDataType_t type, ncclComm_t, cudaStream_t) {
  ask({"AllGather", static_cast<const std::byte*>(send), static_cast<std::byte*>(receive), count, type, ncclSum, 0});
  return ncclSuccess;
};
ncclResult_t (*const ncclBroadcast)(const void*, void*, std::size_t, ncclDataType_t, int, ncclComm_t,
                                    cudaStream_t) = [](const void* send, void* receive, std::size_t count,
                                                       ncclDataType_t type, int root, ncclComm_t, cudaStream_t) {
  ask({"Broadcast", static_cast<const std::byte*>(send), static_cast<std::byte*>(receive), count, type, ncclSum, root});
  return ncclSuccess;
};
cudaError_t (*const cudaGetLastError)() = [] { return cudaSuccess; };
cudaError_t (*const cudaMemcpyAsync)(void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t) =
    [](void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
      count("Copy");
      copyInOrder([=] { std::memcpy(to, from, bytes); });
      return cudaSuccess;
    };
cudaError_t (*const cudaMemcpy2DAsync)(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t,
                                       cudaMemcpyKind, cudaStream_t) =
    [](void* to, std::size_t toPitch, const void* from, std::size_t fromPitch, std::size_t width, std::size_t height,
       cudaMemcpyKind, cudaStream_t) {
      EXPECT_LE(width, std::min(toPitch, fromPitch));
      count("Copy");
      copyInOrder([=] {
        for (std::size_t row = 0; row < height; ++row) {
          std::memcpy(static_cast<std::byte*>(to) + row * toPitch,
                      static_cast<const std::byte*>(from) + row * fromPitch, width);
        }
      });
      return cudaSuccess;
    };

namespace {

struct Tensor {
  Reduction reduction;
  std::uint64_t elements;
};

const Reduction kFloats{.dtype = DType::Float32};
const Reduction kDoubles{.dtype = DType::Float64};

double valueOf(int rank, std::size_t tensor, std::uint64_t i) {
  return static_cast<double>((i * 7 + tensor * 5 + static_cast<std::uint64_t>(rank) * 3) % 100);
}

template <class T>
T read(const std::byte* memory, std::uint64_t i) {
  T value;
  std::memcpy(&value, memory + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void write(std::byte* memory, std::uint64_t i, double value) {
  const T written = static_cast<T>(value);
  std::memcpy(memory + i * sizeof(T), &written, sizeof(T));
}

double at(const Tensor& tensor, const std::byte* memory, std::uint64_t i) {
  return tensor.reduction.dtype == DType::Float32 ? read<float>(memory, i) : read<double>(memory, i);
}

void put(const Tensor& tensor, std::byte* memory, std::uint64_t i, double value) {
  if (tensor.reduction.dtype == DType::Float32) return write<float>(memory, i, value);
  write<double>(memory, i, value);
}

std::uint64_t bytesOf(const Tensor& tensor) { return tensor.elements * bytesOf(tensor.reduction.dtype); }

// A machine of that many ranks, and another one; a slice of these tensors, end to end.
class Machine {
 public:
  Machine(int ranks, std::vector<Tensor> tensors, double scale) : tensors_(std::move(tensors)), scale_(scale) {
    std::vector<Place> places(static_cast<std::size_t>(ranks), {"a", ""});
    places.push_back({"b", ""});
    const Topology topology(places);
    std::uint64_t bytes = 0;
    for (const Tensor& tensor : tensors_) bytes += bytesOf(tensor);
    for (int rank = 0; rank < ranks; ++rank) {
      const NcclPlace place{.rank = rank, .ranks = ranks, .who = "rank", .patience = {std::chrono::seconds(1)}};
      levels_.push_back(std::make_unique<LevelZero>(place, [](const std::string& id) { return id; }, sums_));
      asked.clear();  // what connects
      images_.emplace_back(bytes + 1);
      Slice slice;
      slice.layout = std::make_shared<Layout>(layoutSlice(topology, rank, bytes, 1));
      slice.plan = std::make_shared<Plan>(planOf(Pattern::AllReduce, topology.levels()));
      slice.scale = scale;
      slice.image = images_.back().data();
      slices_.push_back(std::move(slice));
      addTensors(rank);
    }
  }

  void run() {
    for (std::size_t rank = 0; rank < slices_.size(); ++rank) {
      currentRank = static_cast<int>(rank);
      levels_[rank]->reduceScatter(nullptr, slices_[rank]);
    }
    carryOut();
    for (std::size_t rank = 0; rank < slices_.size(); ++rank) {
      currentRank = static_cast<int>(rank);
      levels_[rank]->allGather(nullptr, slices_[rank]);
    }
    carryOut();
  }

  void expectReduced() {
    for (std::size_t rank = 0; rank < slices_.size(); ++rank) {
      for (std::size_t k = 0; k < tensors_.size(); ++k) {
        for (std::uint64_t i = 0; i < tensors_[k].elements; ++i) {
          ASSERT_EQ(at(tensors_[k], users_[rank][k].data(), i), expected(k, i))
              << "rank " << rank << " of " << slices_.size() << ", tensor " << k << ", element " << i;
        }
      }
    }
  }

 private:
  void addTensors(int rank) {
    std::uint64_t begin = 0;
    users_.emplace_back();
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
      const Tensor& tensor = tensors_[k];
      auto& user = users_.back().emplace_back(bytesOf(tensor) + 1);
      for (std::uint64_t i = 0; i < tensor.elements; ++i) put(tensor, user.data(), i, valueOf(rank, k, i));
      slices_.back().portions.push_back({.begin = begin,
                                         .elements = tensor.elements,
                                         .from = user.data(),
                                         .to = user.data(),
                                         .reduction = tensor.reduction,
                                         .tensor = static_cast<std::uint32_t>(k)});
      begin += bytesOf(tensor);
    }
  }

  double expected(std::size_t tensor, std::uint64_t i) const {
    double sum = 0;
    for (std::size_t rank = 0; rank < slices_.size(); ++rank) sum += valueOf(static_cast<int>(rank), tensor, i);
    return sum * scale_;
  }

  std::vector<Tensor> tensors_;
  double scale_;
  DeviceSums sums_{0};
  std::vector<std::unique_ptr<LevelZero>> levels_;
  std::vector<std::vector<std::byte>> images_;
  std::vector<std::vector<std::vector<std::byte>>> users_;  // by rank and tensor
  std::vector<Slice> slices_;
};

TEST(LevelZero, ReducesATensorThatFillsItsSlice) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const std::uint64_t elements : {0, 1, 15, 16, 17, 160, 1000, 1024}) {
      for (const double scale : {1.0, 0.5}) {
        Machine machine(ranks, {{kFloats, elements}}, scale);
        machine.run();
        machine.expectReduced();
      }
    }
  }
}

TEST(LevelZero, ReducesTensorsThatShareASlice) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const double scale : {1.0, 0.5}) {
      Machine machine(ranks, {{kFloats, 100}, {kFloats, 28}, {kDoubles, 5}, {kDoubles, 400}, {kFloats, 3}}, scale);
      machine.run();
      machine.expectReduced();
    }
  }
}

// The blocks of a tensor of floats for each of the ranks of some machines. All ranks of the first machine are here; a
// slice has the same stretch of each block.
class BlocksOfMachine {
 public:
  struct Shape {
    std::vector<int> ranksOf;  // each machine
    bool inTurn = false;       // ranks go to the machines in turn
    std::uint64_t elements = 0;
    std::uint64_t begin = 0;  // of the stretch
    std::uint64_t end = 0;
  };

  BlocksOfMachine(Shape shape, Pattern pattern, double scale)
      : shape_(std::move(shape)), topology_(placesOf(shape_)), blocks_(topology_), ranks_(topology_.ranksOf(0)) {
    const std::vector<std::uint64_t> sizes(world(), (shape_.end - shape_.begin) * kFloatBytes);
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      const NcclPlace place{.rank = static_cast<int>(index),
                            .ranks = static_cast<int>(ranks_.size()),
                            .who = "rank",
                            .patience = {std::chrono::seconds(1)}};
      levels_.push_back(std::make_unique<LevelZero>(place, [](const std::string& id) { return id; }, sums_));
      Slice& slice = slices_.emplace_back();
      slice.layout = std::make_shared<Layout>(blocks_.layout(topology_, ranks_[index], sizes));
      slice.plan = std::make_shared<Plan>(planOf(pattern, topology_.levels()));
      slice.scale = scale;
      images_.emplace_back(slice.layout->elements + 1, std::byte{0xFF});
      slice.image = images_.back().data();
      users_.emplace_back(world() * shape_.elements, -1.0F);
      parts_.emplace_back(shape_.elements, -1.0F);
    }
    asked.clear();  // what connects
    counted.clear();
    const std::vector<std::uint64_t> offsets = blockOffsets(blocks_, sizes);
    for (std::size_t index = 0; index < ranks_.size(); ++index) addPortions(index, pattern, offsets);
  }

  std::size_t world() const { return static_cast<std::size_t>(topology_.world()); }

  // Checks each block's sum over the machine, in the image of the rank that owns its place.
  void scatter() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t i = 0; i < users_[r].size(); ++i) users_[r][i] = value(r, i);
    }
    each([](LevelZero& level, const Slice& slice) { level.reduceScatter(nullptr, slice); });
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Range& mine = slices_[r].layout->at(0).rails.front().own();
      for (const Portion& portion : within(slices_[r].portions, mine)) {
        const auto first = static_cast<std::uint64_t>(reinterpret_cast<const float*>(portion.from) - users_[r].data());
        for (std::uint64_t i = 0; i < portion.elements; ++i) {
          float sum = 0;
          for (std::size_t other = 0; other < ranks_.size(); ++other)
            sum += value(other, first + i) * static_cast<float>(slices_[r].scale);
          ASSERT_EQ(reinterpret_cast<const float*>(slices_[r].image + portion.begin)[i], sum)
              << "element " << first + i;
        }
      }
    }
  }

  // Data of other machines stands in the images; afterwards every rank's memory has all of it.
  void gather() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      std::ranges::generate(parts_[r], [this, r, i = std::size_t{0}]() mutable { return blockValue(ranks_[r], i++); });
      currentRank = static_cast<int>(r);
      levels_[r]->load(nullptr, slices_[r]);
      const Range& mine = slices_[r].layout->at(0).rails.front().own();
      for (const Portion& portion : within(slices_[r].portions, mine)) {
        if (portion.from != nullptr) continue;
        const auto [block, first] = blockAt(r, portion);
        auto* image = reinterpret_cast<float*>(slices_[r].image + portion.begin);
        for (std::uint64_t i = 0; i < portion.elements; ++i) image[i] = blockValue(block, first + i);
      }
    }
    each([](LevelZero& level, const Slice& slice) { level.allGather(nullptr, slice); });
    for (const auto& user : users_) {
      for (std::size_t i = 0; i < user.size(); ++i) {
        const std::uint64_t at = i % shape_.elements;
        const bool isIn = at >= shape_.begin && at < shape_.end;
        ASSERT_EQ(user[i], isIn ? blockValue(static_cast<int>(i / shape_.elements), at) : -1.0F) << "element " << i;
      }
    }
  }

  void store() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (const Portion& portion : slices_[r].portions) {
        if (portion.to != nullptr)
          std::fill_n(reinterpret_cast<float*>(slices_[r].image + portion.begin), portion.elements, 5.0F);
      }
      levels_[r]->store(nullptr, slices_[r]);
      for (std::uint64_t i = 0; i < shape_.elements; ++i)
        ASSERT_EQ(parts_[r][i], i >= shape_.begin && i < shape_.end ? 5.0F : -1.0F);
    }
  }

 private:
  static std::vector<Place> placesOf(const Shape& shape) {
    std::vector<Place> places;
    const int most = std::ranges::max(shape.ranksOf);
    const auto machines = static_cast<int>(shape.ranksOf.size());
    for (int i = 0; i < most * machines; ++i) {
      const int machine = shape.inTurn ? i % machines : i / most;
      const int local = shape.inTurn ? i / machines : i % most;
      if (local < shape.ranksOf[static_cast<std::size_t>(machine)])
        places.push_back({std::string(1, static_cast<char>('a' + machine)), ""});
    }
    return places;
  }
  static float value(std::size_t rank, std::uint64_t i) { return static_cast<float>((i * 7 + rank * 3) % 64); }
  static float blockValue(int block, std::uint64_t i) {
    return static_cast<float>((i * 5 + static_cast<std::uint64_t>(block) * 11) % 64);
  }

  std::pair<int, std::uint64_t> blockAt(std::size_t rank, const Portion& portion) const {
    const auto at = static_cast<std::uint64_t>(reinterpret_cast<const float*>(portion.to) - users_[rank].data());
    return {static_cast<int>(at / shape_.elements), at % shape_.elements};
  }

  void addPortions(std::size_t index, Pattern pattern, const std::vector<std::uint64_t>& offsets) {
    for (std::size_t i = 0; i < world() && shape_.begin < shape_.end; ++i) {
      const int block = blocks_.order()[i];
      float* whole = users_[index].data() + static_cast<std::uint64_t>(block) * shape_.elements + shape_.begin;
      float* mine = block == ranks_[index] ? parts_[index].data() + shape_.begin : nullptr;
      const bool gathers = pattern == Pattern::AllGather;
      slices_[index].portions.push_back({.begin = offsets[i],
                                         .elements = shape_.end - shape_.begin,
                                         .from = reinterpret_cast<std::byte*>(gathers ? mine : whole),
                                         .to = reinterpret_cast<std::byte*>(gathers ? whole : mine),
                                         .reduction = kFloats});
    }
  }

  void each(const std::function<void(LevelZero&, const Slice&)>& call) {
    for (std::size_t rank = 0; rank < slices_.size(); ++rank) {
      currentRank = static_cast<int>(rank);
      call(*levels_[rank], slices_[rank]);
    }
    if (ranks_.size() > 1) carryOut();
  }

  const Shape shape_;
  const Topology topology_;
  const Blocks blocks_;
  const std::vector<int> ranks_;
  DeviceSums sums_{0};
  std::vector<std::unique_ptr<LevelZero>> levels_;
  std::vector<std::vector<std::byte>> images_;
  std::vector<std::vector<float>> users_;  // of all blocks
  std::vector<std::vector<float>> parts_;  // of this rank's block
  std::vector<Slice> slices_;
};

using Shape = BlocksOfMachine::Shape;

std::vector<Shape> shapes() {
  std::vector<Shape> shapes;
  for (const auto& machines : {std::vector{2, 2}, {3, 3, 3}, {4, 4}, {1, 1, 1}, {2, 1}, {1, 3}, {3, 2, 1}}) {
    for (const bool inTurn : {false, true}) {
      shapes.push_back({machines, inTurn, 0, 0, 0});
      for (const std::uint64_t elements : {1, 16, 100}) shapes.push_back({machines, inTurn, elements, 0, elements});
      shapes.push_back({machines, inTurn, 100, 16, 80});
    }
  }
  return shapes;
}

TEST(LevelZero, ScattersAndStoresBlocks) {
  for (const Shape& shape : shapes()) {
    for (const double scale : {1.0, 0.5}) {
      BlocksOfMachine machine(shape, Pattern::ReduceScatter, scale);
      if (shape.begin < shape.end) machine.scatter();
      machine.store();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(LevelZero, LoadsAndGathersBlocks) {
  for (const Shape& shape : shapes()) {
    if (shape.begin == shape.end) continue;
    BlocksOfMachine machine(shape, Pattern::AllGather, 1.0);
    machine.gather();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(LevelZero, TakesFewCallsForBlocksOfEqualMachines) {
  const std::vector<int> machines(4, 8);
  BlocksOfMachine scattering({machines, false, 300, 0, 160}, Pattern::ReduceScatter, 1.0);
  scattering.scatter();
  EXPECT_EQ(counted, (std::map<std::string, int>{{"Copy", 8}, {"ReduceScatter", 1}}));
  BlocksOfMachine wholes({machines, false, 300, 0, 300}, Pattern::AllGather, 1.0);
  wholes.gather();
  EXPECT_EQ(counted, (std::map<std::string, int>{{"Copy", 1}, {"AllGather", 4}})) << "where they belong";
  BlocksOfMachine stretches({machines, false, 300, 16, 48}, Pattern::AllGather, 1.0);
  stretches.gather();
  EXPECT_EQ(counted, (std::map<std::string, int>{{"Copy", 1 + 8}, {"AllGather", 1}}));
}

TEST(LevelZero, JoinsPiecesOfOneTensorAlone) {
  constexpr std::size_t kPieces = 4;
  constexpr std::size_t kApart = 64;
  std::vector<std::byte> from(kPieces * kApart);
  std::vector<std::byte> to(kPieces * kApart);
  const auto calls = [&](bool isOneTensor) {
    std::vector<CopiedPiece> pieces;
    for (std::size_t k = 0; k < kPieces; ++k) {
      const auto tensor = static_cast<std::uint32_t>(isOneTensor ? 0 : k);
      pieces.push_back({to.data() + k * kApart, from.data() + k * kApart, kApart / 2, tensor});
    }
    return LevelZeroCopies(pieces).calls();
  };
  EXPECT_EQ(calls(true), 1);
  EXPECT_EQ(calls(false), kPieces);
}

}  // namespace
}  // namespace fairring
