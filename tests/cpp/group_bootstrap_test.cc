// How ranks find each other, under schedules drawn from seeds: every verb of the store and every probe of a listener is
// one rank's step, and a rank can die before each of its steps.
#include "group/bootstrap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "map_store.h"

namespace fairring {
namespace {

class Killed : public std::exception {};

// Lets one of its actors take a step at a time, drawn at random, on threads of their own. Their shared data needs no
// lock between steps. An actor that was killed notices at its next step.
class Schedule {
 public:
  explicit Schedule(std::uint64_t seed) : random_(seed) {}

  struct Actor {
    bool waits = false;
    bool mayRun = false;
    bool killed = false;
    bool ended = false;
    std::thread thread;
  };

  // The test.
  template <class Body>
  Actor& start(Body body) {
    Actor& actor = *actors_.emplace_back(std::make_unique<Actor>());
    actor.thread = std::thread([this, &actor, body = std::move(body)] {
      try {
        step(actor);
        body(actor);
        // NOLINTNEXTLINE(bugprone-empty-catch): its process has ended
      } catch (const Killed&) {
      }
      const std::lock_guard lock(mutex_);
      actor.ended = true;
      changed_.notify_all();
    });
    return actor;
  }

  // An actor: waits for its turn.
  void step(Actor& self) {
    std::unique_lock lock(mutex_);
    self.waits = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return self.mayRun; });
    self.waits = self.mayRun = false;
    if (self.killed) throw Killed();
  }

  // The test: an actor takes its next step, and is waiting for another one, or has ended, on return. False: all have
  // ended.
  bool run() {
    std::unique_lock lock(mutex_);
    std::vector<Actor*> living;
    for (const auto& actor : actors_) {
      if (!comesToWait(lock, *actor)) continue;
      living.push_back(actor.get());
    }
    if (living.empty()) return false;
    resume(lock, *living[random_() % living.size()]);
    return true;
  }

  // The test: the actor has ended on return.
  void kill(Actor& victim) {
    std::unique_lock lock(mutex_);
    victim.killed = true;
    while (comesToWait(lock, victim)) resume(lock, victim);
  }

  ~Schedule() {
    for (const auto& actor : actors_) kill(*actor);
    for (const auto& actor : actors_) actor->thread.join();
  }

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }

 private:
  // False: it has ended.
  bool comesToWait(std::unique_lock<std::mutex>& lock, const Actor& actor) {
    changed_.wait(lock, [&] { return actor.waits || actor.ended; });
    return !actor.ended;
  }

  void resume(std::unique_lock<std::mutex>& lock, Actor& actor) {
    actor.mayRun = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !actor.mayRun; });
    comesToWait(lock, actor);
  }

  std::mt19937_64 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Actor>> actors_;
};

using testing::MapStore;
using Map = MapStore::Map;

class SteppedStore final : public MapStore {
 public:
  SteppedStore(Map& map, Schedule& schedule, Schedule::Actor& actor)
      : MapStore(map), schedule_(schedule), actor_(actor) {}

 private:
  Turn begin() override {
    schedule_.step(actor_);
    return {};
  }

  Schedule& schedule_;
  Schedule::Actor& actor_;
};

// Its set() returns before it has happened, as that of torch's store does.
class LateStore final : public MapStore {
 public:
  explicit LateStore(Map& map) : MapStore(map) {}

  void set(const std::string& key, const std::string& value) override {
    begin();
    late_.emplace(key, value);
  }

 private:
  Turn begin() override {
    if (const auto set = std::exchange(late_, std::nullopt)) map()[set->first] = set->second;
    return {};
  }

  std::optional<std::pair<std::string, std::string>> late_;
};

// A rank's knowledge once it has met the others.
struct Met {
  std::int64_t generation = 0;
  Secret secret{};
  std::vector<int> ports;
  bool operator==(const Met&) const = default;
};

// Ranks and the network between them: each listens on a port of its own, a new one each time.
class World {
 public:
  World(std::uint64_t seed, int size) : met(static_cast<std::size_t>(size)), size_(size), schedule(seed) {}

  // A life of a rank: one making of the group, up to its end.
  class Life {
   public:
    Life(World& world, int rank, Schedule::Actor& actor, Departures& departures)
        : world_(world),
          rank_(rank),
          actor_(actor),
          store_(world.map_, world.schedule, actor),
          bootstrap_(store_, {.name = "g", .rank = rank, .size = world.size_, .secret = {}}, steps(), departures) {}
    Life(const Life&) = delete;
    Life& operator=(const Life&) = delete;
    ~Life() {
      if (!left_) close();
      world_.met[static_cast<std::size_t>(rank_)].reset();
    }

    // Waits until all have met in its generation. False: another rank has ended before that.
    bool meet() {
      try {
        while (bootstrap_.look(store_).state != Bootstrap::State::Met) {
        }
      } catch (const Failure& failure) {
        EXPECT_EQ(failure.error().kind(), ErrorKind::PeerLeft) << failure.what();  // the group has failed elsewhere
        return false;
      }
      Met& met = world_.met[static_cast<std::size_t>(rank_)].emplace();
      met = {.generation = bootstrap_.generation(), .secret = secret_, .ports = {}};
      for (const RankFacts& facts : bootstrap_.facts()) met.ports.push_back(facts.port);
      while (!store_.has(bootstrap_.allMetKey())) {
        if (seesDeath()) return false;
      }
      return true;
    }

    // As the engine does, which has connections to the others.
    bool seesDeath() {
      world_.schedule.step(actor_);
      const bool death = std::ranges::any_of(
          bootstrap_.facts(), [this](const RankFacts& facts) { return !world_.open_.contains(facts.port); });
      if (death) store_.set(bootstrap_.errorKey(), "a rank has died");
      return death;
    }

    void leave() {
      left_ = true;
      bootstrap_.leave();
    }

   private:
    BootstrapSteps steps() {
      return {.listen =
                  [this](std::int64_t, const Secret& secret) {
                    secret_ = secret;
                    port_ = ++world_.lastPort_;
                    world_.open_.insert(*port_);
                    RankFacts facts;
                    facts.place.machine = facts.hostname = facts.settings = "equal";
                    facts.addresses = {"::"};
                    facts.port = *port_;
                    return facts;
                  },
              .stopListening = [this] { close(); },
              .checkFacts = [](const std::vector<RankFacts>&) {},
              .isGone =
                  [this](int, const RankFacts& facts) {
                    world_.schedule.step(actor_);
                    return !world_.open_.contains(facts.port);
                  }};
    }

    void close() {
      if (port_) world_.open_.erase(*port_);
      port_.reset();
    }

    World& world_;
    const int rank_;
    Schedule::Actor& actor_;
    SteppedStore store_;
    Secret secret_{};
    std::optional<int> port_;  // stays open if it leaves in good order: a rank that looks for it there has met it
    bool left_ = false;
    Bootstrap bootstrap_;
  };

  // Two ranks that are in one generation have one secret, and the same listeners.
  void expectAgreement() const {
    std::map<std::int64_t, const Met*> first;
    for (const std::optional<Met>& one : met) {
      if (!one) continue;
      const Met& other = *first.try_emplace(one->generation, &*one).first->second;
      ASSERT_EQ(*one, other) << "in generation " << one->generation;
    }
  }

  bool isWhole() const {
    return std::ranges::all_of(met, [this](const auto& one) { return one && *one == *met.front(); });
  }

  std::vector<std::optional<Met>> met;  // by rank; none: it has not met the others, or has ended

 private:
  const int size_;
  Map map_;
  std::set<int> open_;
  int lastPort_ = 0;

 public:
  Schedule schedule;  // last: it ends the lives, which use all else
};

constexpr int kSchedules = 50;
constexpr int kMostSteps = 30'000;

// Drawn anew in each run. --gtest_random_seed=(seed - 1) / 50 repeats the seeds of a failure.
std::vector<std::uint64_t> seeds() {
  std::vector<std::uint64_t> all(kSchedules);
  const auto first = static_cast<std::uint64_t>(::testing::UnitTest::GetInstance()->random_seed()) * kSchedules;
  std::iota(all.begin(), all.end(), first + 1);
  return all;
}

TEST(Bootstrap, RanksThatLeaveInGoodOrderMeetInTheSameGenerationEachTime) {
  constexpr int kLives = 3;
  for (const std::uint64_t seed : seeds()) {
    const int size = 2 + static_cast<int>(seed % 3);
    std::vector<std::vector<Met>> lives(static_cast<std::size_t>(size));
    World world(seed, size);
    for (int rank = 0; rank < size; ++rank) {
      world.schedule.start([&, rank](Schedule::Actor& actor) {
        Departures departures;
        for (int life = 0; life < kLives; ++life) {
          World::Life one(world, rank, actor, departures);
          if (!one.meet()) return;
          lives[static_cast<std::size_t>(rank)].push_back(*world.met[static_cast<std::size_t>(rank)]);
          one.leave();
        }
      });
    }
    for (int steps = 0; world.schedule.run(); ++steps) ASSERT_LT(steps, kMostSteps) << "seed " << seed;
    for (const auto& met : lives) {
      ASSERT_EQ(met.size(), kLives) << "seed " << seed;
      for (int life = 0; life < kLives; ++life) ASSERT_EQ(met[static_cast<std::size_t>(life)].generation, life + 1);
      ASSERT_EQ(met, lives.front()) << "seed " << seed;
    }
  }
}

std::unique_ptr<Bootstrap> bootstrapOf(KeyValue& store, int rank, int size, Departures& departures) {
  const auto listen = [rank](std::int64_t, const Secret&) {
    RankFacts facts;
    facts.place.machine = facts.hostname = facts.settings = "equal";
    facts.addresses = {"::"};
    facts.port = 1 + rank;
    return facts;
  };
  BootstrapSteps steps{.listen = listen,
                       .stopListening = [] {},
                       .checkFacts = [](const std::vector<RankFacts>&) {},
                       .isGone = [](int, const RankFacts&) { return false; }};
  BootstrapOptions options{.name = "g", .rank = rank, .size = size, .secret = {}};
  return std::make_unique<Bootstrap>(store, std::move(options), std::move(steps), departures);
}

TEST(Bootstrap, WhenAllHaveMetTheStoreSaysSo) {
  Map map;
  Departures departures;
  std::deque<LateStore> stores;
  for (int rank = 0; rank < 3; ++rank) stores.emplace_back(map);
  std::vector<std::unique_ptr<Bootstrap>> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.push_back(bootstrapOf(stores[static_cast<std::size_t>(rank)], rank, 3, departures));
  for (LateStore& store : stores) store.has("");  // so that the facts are there, which each has set last
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    while (ranks[rank]->look(stores[rank]).state != Bootstrap::State::Met) {
    }
    EXPECT_EQ(map.contains(ranks[rank]->allMetKey()), rank + 1 == ranks.size());
  }
}

// Asked for several keys at once, it counts one question.
class CountedStore final : public MapStore {
 public:
  explicit CountedStore(Map& map) : MapStore(map) {}

  bool hasAll(std::span<const std::string> keys) override {
    begin();
    return std::ranges::all_of(keys, [&](const std::string& key) { return map().contains(key); });
  }
  std::vector<std::string> getAll(std::span<const std::string> keys) override {
    begin();
    std::vector<std::string> values;
    for (const std::string& key : keys) values.push_back(map().at(key));
    return values;
  }

  int questions = 0;

 private:
  Turn begin() override {
    ++questions;
    return {};
  }
};

TEST(Bootstrap, ARankAsksTheStoreAsOftenInALargeGroupAsInASmallOne) {
  const auto questions = [](int size) {
    Map map;
    Departures departures;
    CountedStore store(map);
    std::vector<std::unique_ptr<Bootstrap>> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(bootstrapOf(store, rank, size, departures));
    const int before = store.questions;
    for (const auto& rank : ranks) EXPECT_EQ(rank->look(store).state, Bootstrap::State::Met);
    EXPECT_LE(before, 10 * size);
    return (store.questions - before - 2) / size;  // the last one also says that all have met
  };
  EXPECT_EQ(questions(3), questions(300));
}

TEST(Bootstrap, NamesWhoIsMissingWithoutAskingForEach) {
  constexpr int kSize = 512;
  Map map;
  Departures departures;
  CountedStore store(map);
  std::vector<std::unique_ptr<Bootstrap>> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank != 7 && rank != 500) ranks.push_back(bootstrapOf(store, rank, kSize, departures));
  }
  EXPECT_EQ(ranks.front()->look(store).state, Bootstrap::State::Missing);
  store.questions = 0;
  EXPECT_EQ(ranks.front()->missing(store), (std::vector{7, 500}));
  EXPECT_LE(store.questions, 40);
}

// A rank's processes, one after the other; a process makes the group again after an error, as a program that catches
// the error may do.
class Process {
 public:
  Process(World& world, int rank) : world_(world), rank_(rank) { start(); }

  void killAndStartAgain() {
    world_.schedule.kill(*actor_);
    start();
  }

 private:
  void start() {
    actor_ = &world_.schedule.start([&world = world_, rank = rank_](Schedule::Actor& actor) {
      Departures departures;
      for (;;) {
        World::Life life(world, rank, actor, departures);
        if (!life.meet()) continue;
        while (!life.seesDeath()) {
        }
      }
    });
  }

  World& world_;
  const int rank_;
  Schedule::Actor* actor_ = nullptr;
};

TEST(Bootstrap, RanksThatDieAtAnyMomentAndComeAgainMeetTheOthersInTheEnd) {
  for (const std::uint64_t seed : seeds()) {
    const int size = 2 + static_cast<int>(seed % 3);
    World world(seed, size);
    std::vector<Process> ranks;
    ranks.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      for (std::uint64_t late = world.schedule.draw(60); rank > 0 && late > 0; --late) world.schedule.run();
      ranks.emplace_back(world, rank);
    }
    for (std::uint64_t deaths = world.schedule.draw(5); deaths > 0; --deaths) {
      for (std::uint64_t steps = world.schedule.draw(200); steps > 0; --steps) world.schedule.run();
      ranks[world.schedule.draw(ranks.size())].killAndStartAgain();
      world.expectAgreement();
    }
    for (int steps = 0; !world.isWhole(); ++steps) {
      ASSERT_LT(steps, kMostSteps) << "seed " << seed << ": they have not met";
      world.schedule.run();
      world.expectAgreement();
      if (HasFatalFailure()) FAIL() << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace fairring
