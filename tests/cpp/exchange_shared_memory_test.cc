// A rank's reads from its machine's other ranks when one of them publishes false values.
#include "exchange/shared_memory.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "plan_machines.h"

namespace fairring {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kStagingBytes = 1 << 16;
constexpr std::uint64_t kElements = 64;

// Two ranks of one machine in this process, on one loop; the test may change the memory that one has mapped.
struct Pair {
  Loop loop;
  std::array<std::unique_ptr<SharedMemory>, 2> ranks;
  std::array<std::vector<float>, 2> tensors;
  std::array<Error, 2> errors;
  std::array<int, 2> ready{};
  std::uint64_t elements = kElements;
  std::uint64_t sequence = 0;

  // The loop's progress belongs to the thread inside runOnce().
  void onLoop(std::function<void()> task) {
    loop.post(std::move(task));
    loop.runOnce(0ms);
  }

  Pair() {
    onLoop([this] {
      for (const int rank : {0, 1}) {
        const Troubles troubles{
            [this, rank](const Error& error) { failed(rank, error); }, [](int) {},
            [this, rank](int peer) { failed(rank, makeError(ErrorKind::PeerLeft, "rank ", peer)); }};
        ranks[rank] = std::make_unique<SharedMemory>(loop, std::vector{0, 1}, rank, kStagingBytes, troubles);
      }
      for (const int rank : {0, 1}) {
        std::vector<Descriptor> handed;
        for (const int descriptor : ranks[1 - rank]->flags().descriptors()) handed.emplace_back(::dup(descriptor));
        ranks[rank]->flags().attach(1 - rank, std::move(handed));
      }
    });
  }

  ~Pair() {
    onLoop([this] {
      for (auto& rank : ranks) rank.reset();
    });
  }

  void failed(int rank, const Error& error) {
    errors[rank] = error;
    loop.post([this, rank] { ranks[rank]->stop(); });
  }

  std::shared_ptr<Slice> sliceOf(int rank) {
    tensors[rank].assign(elements, static_cast<float>(rank + 1));
    const Topology topology = onOneSite({2});
    Slice slice;
    slice.id.sequence = sequence;
    slice.layout = std::make_shared<const Layout>(layoutSlice(topology, rank, elements * sizeof(float)));
    slice.plan = std::make_shared<const Plan>(Plan{{Verb::ReduceScatter, 0}, {Verb::AllGather, 0}});
    auto* const tensor = reinterpret_cast<std::byte*>(tensors[rank].data());
    slice.portions = {{.begin = 0, .elements = elements, .from = tensor, .to = tensor, .reduction = {}}};
    slice.image = ranks[rank]->flags().staging();
    return std::make_shared<Slice>(slice);
  }

  std::shared_ptr<Slice> begin(int rank) {
    auto slice = sliceOf(rank);
    onLoop([&] {
      ranks[rank]->admit(slice);
      ranks[rank]->start(slice, 0, {[this, rank] { ++ready[rank]; }, [] {}});
    });
    return slice;
  }

  void gather(int rank, const std::shared_ptr<Slice>& slice) {
    onLoop([&] { ranks[rank]->start(slice, 1, {[this, rank] { ++ready[rank]; }, [] {}}); });
  }

  void run() {
    for (int turn = 0; turn < 100; ++turn) loop.runOnce(0ms);
  }

  // Both ranks' steps of one slice; returns rank 0's.
  std::shared_ptr<Slice> allReduce() {
    const auto first = begin(0);
    const auto second = begin(1);
    run();
    gather(0, first);
    gather(1, second);
    run();
    return first;
  }

  // The fourth word of the first line of flags: where the rank claims that its image lies.
  void lie(int rank, std::uint64_t stagingOffset) const {
    std::byte* flags = ranks[rank]->flags().staging() - (64 << 10);
    std::memcpy(flags + 3 * sizeof(std::uint64_t), &stagingOffset, sizeof stagingOffset);
  }
};

TEST(SharedMemory, SumsAndGathersBetweenTwoRanks) {
  Pair pair;
  pair.allReduce();
  EXPECT_EQ(pair.ready, (std::array{2, 2}));
  for (const auto& tensor : pair.tensors) EXPECT_EQ(tensor, std::vector<float>(kElements, 3.0F));
  for (const auto& rank : pair.ranks) {  // half of it, in each of two steps
    EXPECT_EQ(rank->traffic().messages, 2);
    EXPECT_EQ(rank->traffic().bytes, kElements * sizeof(float));
  }
}

TEST(SharedMemory, TriesBothWaysToFillAnImageAndTellsTheTimes) {
  Pair pair;
  pair.elements = kStagingBytes / sizeof(float);
  std::vector<std::uint64_t> streamed;
  for (; pair.sequence < 80; ++pair.sequence) {
    pair.ready = {};
    const auto slice = pair.allReduce();
    ASSERT_EQ(pair.ready, (std::array{2, 2}));
    for (const auto& tensor : pair.tensors) ASSERT_EQ(tensor, std::vector<float>(pair.elements, 3.0F));
    const auto [offset, signature, scale, refused, costs] = pair.ranks[0]->flags().published(1, slice->id);
    EXPECT_EQ(costs.cached > 0, pair.sequence > 0);
    EXPECT_EQ(costs.streamed > 0, pair.sequence > 60);
    if (slice->streams) streamed.push_back(pair.sequence);
  }
  ASSERT_FALSE(streamed.empty());
  EXPECT_EQ(streamed.front(), 60);
}

bool isRung(SharedMemory& rank) {
  pollfd bell{.fd = rank.flags().doorbell(), .events = POLLIN, .revents = 0};
  return ::poll(&bell, 1, 0) == 1;
}

// Two of rank 0's slices begin in one turn; what its peer has noticed of the second by then, and at the end.
struct TwoSlices : Pair {
  std::shared_ptr<Slice> alone = sliceOf(0);
  std::shared_ptr<Slice> second = std::make_shared<Slice>(*alone);

  void beginBoth(const std::function<void()>& then) {
    second->id.sequence = 1;
    second->stagingOffset = kStagingBytes / 2;
    second->image += second->stagingOffset;
    onLoop([&] {
      for (const auto& slice : {alone, second}) {
        ranks[0]->admit(slice);
        ranks[0]->start(slice, 0, {[] {}, [] {}});
        EXPECT_EQ(isRung(*ranks[1]), slice == alone);
        ranks[1]->flags().drainDoorbell();
      }
      then();
    });
  }
};

TEST(SharedMemory, WakesPeersAtOnceForASliceAloneAndAtTheEndOfTheTurnForSeveral) {
  TwoSlices pair;
  pair.beginBoth([] {});
  EXPECT_TRUE(isRung(*pair.ranks[1]));
}

TEST(SharedMemory, WakesPeersBeforeItEndsThoughTheTurnHasNot) {
  TwoSlices pair;
  pair.beginBoth([&] {
    pair.ranks[0].reset();
    EXPECT_TRUE(isRung(*pair.ranks[1]));
  });
}

TEST(SharedMemory, AnImageThatLiesOutsideTheSegmentIsAnError) {
  Pair pair;
  const auto first = pair.begin(0);
  pair.run();
  pair.lie(0, kStagingBytes - 4);
  const auto second = pair.begin(1);
  pair.run();
  EXPECT_EQ(pair.ready[1], 0);
  EXPECT_NE(pair.errors[1].text().find("rank 0 says its image of slice 0 lies at 65532 of 65536"), std::string::npos);
}

TEST(SharedMemory, APlaceThatChangesAfterItWasCheckedIsNotLookedAtAgain) {
  Pair pair;
  const auto first = pair.begin(0);
  const auto second = pair.begin(1);
  pair.run();
  pair.lie(0, std::uint64_t{1} << 46);
  pair.gather(0, first);
  pair.gather(1, second);
  pair.run();
  EXPECT_EQ(pair.ready, (std::array{2, 2}));
  for (const auto& tensor : pair.tensors) EXPECT_EQ(tensor, std::vector<float>(kElements, 3.0F));
}

}  // namespace
}  // namespace fairring
