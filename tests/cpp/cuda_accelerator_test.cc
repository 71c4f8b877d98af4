// The accelerator of a rank that is alone on its machine, on a device. Level 0 of several ranks is NCCL's, which wants
// a process for each of them: tests/gpu.
#include "device/cuda_accelerator.h"

#include <gtest/gtest.h>

#include <atomic>

#include "cuda_device.h"
#include "device/level_zero_copies.h"
#include "plan/blocks.h"
#include "plan/topology.h"

namespace fairring {
namespace {

constexpr std::uint64_t kElements = 1000;
constexpr char kJoining[] = "rank 3, on CUDA device 0: ncclCommInitRankConfig between the 2 ranks of the machine";

class CudaAccelerators : public testing::Test {
 protected:
  void SetUp() override {
    skipWithoutDevice();
    if (IsSkipped()) return;
    const std::string reason = whyNoCudaAccelerator(kDevice);
    if (!reason.empty()) GTEST_SKIP() << reason;
    accelerator_ =
        makeCudaAccelerator(kDevice, 0, {.index = 0, .count = 1, .fromFirst = {}}, {std::chrono::seconds(60)});
  }

  // One slice of floats on a machine with only this rank, and another machine.
  Slice slice(std::byte* user, std::byte* image, double scale) {
    const Topology topology({{"a", ""}, {"b", ""}});
    Slice slice;
    slice.layout = std::make_shared<Layout>(layoutSlice(topology, 0, 4 * kElements));
    slice.portions = {{.begin = 0, .elements = kElements, .from = user, .to = user, .reduction = {}}};
    slice.scale = scale;
    slice.image = image;
    return slice;
  }

  // Of making one with a rank that never comes.
  static Error errorAlone(const NcclPatience& patience) {
    const auto fromFirst = [](const std::string& mine) { return mine; };
    try {
      makeCudaAccelerator(kDevice, 3, {.index = 0, .count = 2, .fromFirst = fromFirst}, patience);
    } catch (const Failure& failure) {
      return failure.error();
    }
    return {};
  }

  Accelerator& accelerator() { return *accelerator_; }
  static void await(Accelerator::Stream stream) {
    EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), cudaSuccess);
  }

 private:
  std::unique_ptr<Accelerator> accelerator_;
};

TEST_F(CudaAccelerators, CarryASliceThroughALevelOfOneRank) {
  const auto user = accelerator().device(4 * kElements);
  const auto image = accelerator().device(4 * kElements);
  const auto pinned = accelerator().pinned(8 * kElements + 64);
  auto* word = reinterpret_cast<Accelerator::Word*>(pinned.get() + 8 * kElements);
  auto* told = word + 1;
  auto* in = reinterpret_cast<float*>(pinned.get());
  const float* out = in + kElements;
  for (std::uint64_t i = 0; i < kElements; ++i) in[i] = static_cast<float>(i);
  const Slice slice = this->slice(user.get(), image.get(), 0.5);

  const auto stream = accelerator().stream(0);
  accelerator().gate(stream, word, 1);
  accelerator().copyIn(stream, user.get(), in, 4 * kElements);
  accelerator().reduceScatter(stream, slice);
  accelerator().allGather(stream, slice);
  const auto event = accelerator().record(stream);
  const auto next = accelerator().stream(1);
  accelerator().wait(next, event);
  accelerator().copyOut(next, pinned.get() + 4 * kElements, user.get(), 4 * kElements);
  accelerator().write(next, told, 1);
  std::atomic_ref(*word).store(1, std::memory_order_release);
  await(next);
  EXPECT_EQ(std::atomic_ref(*told).load(std::memory_order_acquire), 1U);
  for (std::uint64_t i = 0; i < kElements; ++i) ASSERT_EQ(out[i], static_cast<float>(i) / 2);
}

// Three machines of one rank: a slice has the same stretch of each rank's block, more of which lies around it.
TEST_F(CudaAccelerators, CarryBlocksBetweenUsersMemoryAndTheImage) {
  constexpr std::uint64_t kBlocks = 3;
  constexpr std::uint64_t kStretch = 100;  // of each block
  constexpr std::uint64_t kPlace = 448;    // of the stretch in the image, in bytes
  const Topology topology({{"a", ""}, {"b", ""}, {"c", ""}});
  const auto users = accelerator().device(4 * kBlocks * kElements);
  const auto image = accelerator().device(kBlocks * kPlace);
  const auto host = accelerator().pinned(8 * kBlocks * kElements);
  auto* in = reinterpret_cast<float*>(host.get());
  const float* out = in + kBlocks * kElements;
  for (std::uint64_t i = 0; i < kBlocks * kElements; ++i) in[i] = static_cast<float>(i);
  Slice slice;
  slice.layout =
      std::make_shared<Layout>(Blocks(topology).layout(topology, 0, std::vector<std::uint64_t>(kBlocks, 4 * kStretch)));
  slice.plan = std::make_shared<Plan>(planOf(Pattern::ReduceScatter, topology.levels()));
  slice.scale = 0.5;
  slice.image = image.get();
  for (std::uint64_t block = 0; block < kBlocks; ++block) {
    std::byte* user = users.get() + 4 * (block * kElements + kStretch);
    slice.portions.push_back(
        {.begin = block * kPlace, .elements = kStretch, .from = user, .to = user, .reduction = {}});
  }
  const auto stream = accelerator().stream(0);
  accelerator().copyIn(stream, users.get(), in, 4 * kBlocks * kElements);
  accelerator().reduceScatter(stream, slice);
  accelerator().store(stream, slice);
  slice.plan = std::make_shared<Plan>(planOf(Pattern::AllGather, topology.levels()));
  accelerator().load(stream, slice);
  accelerator().allGather(stream, slice);
  accelerator().copyOut(stream, host.get() + 4 * kBlocks * kElements, users.get(), 4 * kBlocks * kElements);
  await(stream);
  for (std::uint64_t i = 0; i < kBlocks * kElements; ++i) {
    const std::uint64_t at = i % kElements;
    const bool isIn = at >= kStretch && at < 2 * kStretch;
    ASSERT_EQ(out[i], isIn ? static_cast<float>(i) / 2 : static_cast<float>(i)) << "element " << i;
  }
}

TEST_F(CudaAccelerators, AreEndedByAnAbortWithoutHavingDoneAnything) { accelerator().abort(); }

TEST_F(CudaAccelerators, WaitForTheMachinesRanksNoLongerThanTheTimeout) {
  const Error error = errorAlone({.timeout = std::chrono::milliseconds(300)});
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_TRUE(error.text().starts_with(kJoining)) << error.text();
  EXPECT_NE(error.text().find("after 300 ms"), std::string::npos) << error.text();
}

TEST_F(CudaAccelerators, WaitForTheMachinesRanksNoLongerThanTheGroupLives) {
  std::atomic<int> looks{0};
  const Error error = errorAlone({.timeout = {}, .isOver = [&looks] { return ++looks > 3; }});
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::Aborted);
  EXPECT_TRUE(error.text().starts_with(kJoining)) << error.text();
}

TEST(LevelZeroCopies, JoinPiecesOfOneTensorAlone) {
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
