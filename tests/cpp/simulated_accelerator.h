// A device for tests, stepped by hand in the test's own thread. Its streams run as late as the test likes, and in any
// order that events and streams allow. A write takes time: from its beginning to its end the memory holds poison, and
// its input may be read at either. So work that lacks an event or a gate gives other results under some schedule, and a
// test that leaves one out must see that.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "device/accelerator.h"
#include "simulated_machine.h"

namespace fairring::testing {

class SimulatedAccelerator final : public Accelerator {
 public:
  struct Settings {
    std::size_t streams = 4;
    std::size_t connections =
        32;  // queues of the device that all streams share; in each, work waits for its predecessor
    // Held by a thread that touches the device, if another thread steps it.
    std::shared_ptr<std::recursive_mutex> mutex = std::make_shared<std::recursive_mutex>();
    bool drains = false;  // at its end, until all waiting work has been let go
    bool isFull = false;  // has no memory left
    // The capacity of a queue, as devices have: a caller that enqueues more waits, while the world goes on.
    std::size_t capacity = std::numeric_limits<std::size_t>::max();
    std::function<void()> meanwhile = [] {};
    std::function<bool()> mayBeCalled = [] { return true; };
    // Leaves out a stream's wait for an event of another, by their indices; or a gate; or tells before the stream is
    // there: the number of the tell, from 0.
    std::function<bool(std::size_t waits, std::size_t recorded)> omitsWait = [](auto, auto) { return false; };
    std::function<bool(const Word*)> omitsGate = [](const Word*) { return false; };
    std::function<bool(std::size_t)> tellsEarly = [](std::size_t) { return false; };
  };

  SimulatedAccelerator(SimulatedMachine& machine, std::size_t localRank, unsigned seed, Settings settings)
      : settings_(std::move(settings)), machine_(machine), localRank_(localRank), random_(seed) {
    queues_.resize(settings_.connections);
    for (std::size_t i = 0; i < settings_.streams + 1; ++i) streams_.push_back(std::make_unique<std::size_t>(i));
  }
  ~SimulatedAccelerator() override {
    while (settings_.drains && !idle()) {
      if (!step()) std::this_thread::yield();
    }
    EXPECT_TRUE(idle()) << "a gate was shut at the end";
    ended();
  }

  Stream callers() { return streams_.back().get(); }  // of the program that makes the calls
  bool idle() const {
    const std::lock_guard lock(*settings_.mutex);
    return std::ranges::all_of(queues_, [](const auto& queue) { return queue.empty(); });
  }

  // Begins or ends something, at random. False if all streams wait.
  bool step() {
    const std::lock_guard lock(*settings_.mutex);
    std::vector<std::size_t> able;
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      if (!queues_[i].empty() && queues_[i].front().mayGoOn()) able.push_back(i);
    }
    if (able.empty()) return false;
    std::deque<Work>& queue = queues_[able[random_() % able.size()]];
    Work& work = queue.front();
    if (!std::exchange(work.begun, true)) {
      if (work.begin) work.begin();
      return true;
    }
    const Work over = std::move(work);
    queue.pop_front();
    if (over.end) over.end();
    return true;
  }

  // The program's own computation: it takes time like all else.
  void compute(Stream stream, std::function<void()> action) { enqueue(stream, {.end = std::move(action)}); }
  // A collective of the program's own, over the machine.
  void meet(Stream stream, std::uint64_t number) {
    Slice slice;
    slice.id.sequence = number;
    together(stream, Together::Users, slice, {});
  }

  std::size_t streams() const override { return settings_.streams; }
  Stream stream(std::size_t index) override { return streams_.at(index).get(); }
  Memory pinned(std::uint64_t bytes) override { return allocate(bytes, 0); }
  Memory device(std::uint64_t bytes) override {
    if (settings_.isFull) throw OutOfMemory(makeError(ErrorKind::System, "no ", bytes, " B of device memory"));
    return allocate(bytes, kPoison);
  }

  Event record(Stream stream) override {
    auto point = std::make_shared<Point>(Point{.stream = indexOf(stream)});
    enqueue(stream, {.end = [point] { point->reached = true; }});
    return point;
  }
  void wait(Stream stream, const Event& event) override {
    const auto point = std::static_pointer_cast<Point>(event);
    if (settings_.omitsWait(indexOf(stream), point->stream)) return;
    enqueue(stream, {.may = [point] { return point->reached; }});
  }
  void copyOut(Stream stream, void* host, const void* device, std::uint64_t bytes) override {
    copy(stream, host, device, bytes);
  }
  void copyIn(Stream stream, void* device, const void* host, std::uint64_t bytes) override {
    copy(stream, device, host, bytes);
  }
  void reduce(Stream stream, const Reduction& reduction, void* out, std::span<const Input> inputs,
              std::uint64_t elements) override {
    const std::size_t bytes = elements * bytesOf(reduction.dtype);
    write(
        stream, out, bytes,
        [reduction, elements, inputs = std::vector(inputs.begin(), inputs.end())](void* result) {
          fairring::reduce(reduction, result, inputs, elements);
        },
        std::ranges::find(inputs, out, &Input::data) != inputs.end());
  }
  void gate(Stream stream, const Word* word, Word atLeast) override {
    if (settings_.omitsGate(word)) return;
    enqueue(stream, {.may = [word, atLeast] {
              const Word now = std::atomic_ref(*const_cast<Word*>(word)).load(std::memory_order_acquire);
              return static_cast<std::int64_t>(now - atLeast) >= 0;
            }});
  }
  void write(Stream stream, Word* word, Word value) override {
    const auto store = [word, value] { std::atomic_ref(*word).store(value, std::memory_order_release); };
    if (settings_.tellsEarly(told_++)) return store();
    enqueue(stream, {.end = store});
  }
  void poisonIf(Stream stream, const Word* word, Results results) override {
    enqueue(stream, {.end = [word, results = std::vector(results.begin(), results.end())] {
              if (std::atomic_ref(*const_cast<Word*>(word)).load(std::memory_order_acquire) == 0) return;
              for (const auto& result : results) std::ranges::fill(result, std::byte{kPoison});
            }});
  }
  void reduceScatter(Stream stream, const Slice& slice) override {
    const LevelLayout& machine = slice.layout->at(0);
    const Range shard = machine.rails.empty() ? Range{} : machine.rails.front().shards[localRank_];
    together(stream, Together::ReduceScatter, slice, {{0, {slice.image + shard.begin, shard.size()}}});
  }
  void allGather(Stream stream, const Slice& slice) override {
    std::vector<Delivery> users;
    for (const Portion& portion : slice.portions) {
      users.push_back({portion.begin, {portion.to, portion.end() - portion.begin}});
    }
    together(stream, Together::AllGather, slice, users);
  }
  void load(Stream stream, const Slice& slice) override {
    for (const Portion& portion : slice.portions) {
      if (portion.from != nullptr)
        copy(stream, slice.image + portion.begin, portion.from, portion.end() - portion.begin);
    }
  }
  void store(Stream stream, const Slice& slice) override {
    for (const Portion& portion : slice.portions) {
      if (portion.to != nullptr) copy(stream, portion.to, slice.image + portion.begin, portion.end() - portion.begin);
    }
  }
  void abort() noexcept override {
    const std::lock_guard lock(*settings_.mutex);
    machine_.abort(localRank_);
  }

  std::function<void()> ended = [] {};  // told at its end

 private:
  static constexpr int kPoison = 0xFF;  // not a number

  struct Work {
    std::function<bool()> may = nullptr;  // begin
    std::function<void()> begin = nullptr;
    std::function<bool()> isOver = nullptr;
    std::function<void()> end = nullptr;
    bool begun = false;
    bool mayGoOn() const {
      const auto& condition = begun ? isOver : may;
      return !condition || condition();
    }
  };

  struct Delivery {  // from that byte of a result on
    std::size_t from;
    std::span<std::byte> to;
  };
  struct Point {
    std::size_t stream;
    bool reached = false;
  };

  Memory allocate(std::uint64_t bytes, int fill) const {
    const auto giveBack = [mayBeCalled = settings_.mayBeCalled](std::byte* p) {
      EXPECT_TRUE(mayBeCalled()) << "memory was given back on the loop";
      ::operator delete[](p, std::align_val_t{64});
    };
    const std::shared_ptr<std::byte[]> memory(new (std::align_val_t{64}) std::byte[bytes], giveBack);
    std::memset(memory.get(), fill, bytes);
    return {memory, memory.get()};
  }

  static std::size_t indexOf(Stream stream) { return *static_cast<std::size_t*>(stream); }
  void enqueue(Stream stream, Work work) {
    EXPECT_TRUE(settings_.mayBeCalled()) << "a call of the device from the loop";
    const std::lock_guard lock(*settings_.mutex);
    auto& queue = queues_[indexOf(stream) % queues_.size()];
    constexpr int kPatience = 100'000;
    for (int i = 0; queue.size() >= settings_.capacity && i < kPatience; ++i) settings_.meanwhile();
    EXPECT_LT(queue.size(), settings_.capacity) << "who enqueues waits for ever";
    queue.push_back(std::move(work));
  }

  bool flip() {
    const std::lock_guard lock(*settings_.mutex);
    return random_() % 2 == 0;
  }

  // `make` reads its input at the beginning or at the end, and fills the result.
  void write(Stream stream, void* out, std::size_t bytes, const std::function<void(void*)>& make, bool inPlace) {
    if (bytes == 0) return;
    auto result = std::make_shared<std::vector<std::byte>>(bytes);
    const bool late = !inPlace && flip();
    enqueue(stream, {.begin =
                         [=] {
                           if (!late) make(result->data());
                           std::memset(out, kPoison, bytes);
                         },
                     .end =
                         [=] {
                           if (late) make(result->data());
                           std::memcpy(out, result->data(), bytes);
                         }});
  }
  void copy(Stream stream, void* to, const void* from, std::uint64_t bytes) {
    write(stream, to, bytes, [from, bytes](void* result) { std::memcpy(result, from, bytes); }, false);
  }

  void together(Stream stream, Together kind, const Slice& slice, const std::vector<Delivery>& deliveries) {
    const std::lock_guard lock(*settings_.mutex);
    const std::size_t which = machine_.book(kind, localRank_);
    enqueue(stream, {.may = [this, kind, which] { return machine_.mayCome(kind, which, localRank_); },
                     .begin =
                         [this, kind, slice, which, deliveries] {
                           for (const auto& [from, to] : deliveries) std::ranges::fill(to, std::byte{kPoison});
                           machine_.come(kind, which, localRank_, slice);
                         },
                     .isOver = [this, kind, which] { return machine_.isOver(kind, which, localRank_); },
                     .end =
                         [this, kind, which, deliveries] {
                           const std::vector<std::byte> result = machine_.take(kind, which, localRank_);
                           for (const auto& [from, to] : deliveries) {
                             if (!result.empty() && !to.empty())
                               std::memcpy(to.data(), result.data() + from, to.size());
                           }
                         }});
  }

  const Settings settings_;
  SimulatedMachine& machine_;
  const std::size_t localRank_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<std::size_t>> streams_;
  std::vector<std::deque<Work>> queues_;
  std::size_t told_ = 0;
};

}  // namespace fairring::testing
