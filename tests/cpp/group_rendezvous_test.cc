// The wait for all ranks: its ends, and the errors that name who was waited for. Schedules of ranks that come, die and
// come again are in group_bootstrap_test.cc.
#include "group/rendezvous.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "map_store.h"

namespace fairring {
namespace {

using std::chrono::milliseconds;
using testing::MapStore;

constexpr milliseconds kForEver{0};
constexpr milliseconds kShort{20};

// A job's store and the listeners of its ranks.
struct Job {
  std::mutex mutex;  // guards all below
  MapStore::Map entries;
  int ports = 0;       // each listener has one of its own
  std::set<int> gone;  // ports that refuse
  bool isStoreLost = false;
  std::map<int, Departures> departures;  // of each rank's process
};

class StoreOfJob final : public MapStore {
 public:
  explicit StoreOfJob(Job& job) : MapStore(job.entries), job_(job) {}

 private:
  Turn begin() override {
    Turn turn(job_.mutex);
    if (job_.isStoreLost) throw std::runtime_error("the store has gone");
    return turn;
  }

  Job& job_;
};

class Rank {
 public:
  Rank(Job& job, int rank, int size)
      : store_(job),
        rendezvous_(
            store_, [&job] { return std::make_unique<StoreOfJob>(job); },
            {.name = "g", .rank = rank, .size = size, .secret = {}}, stepsOf(job), job.departures[rank]) {}

  Rendezvous& operator*() { return rendezvous_; }
  Rendezvous* operator->() { return &rendezvous_; }

  std::future<Error> meet(Rendezvous::Patience patience) {
    return std::async(std::launch::async, [this, patience] {
      try {
        rendezvous_.meet(patience);
        return Error();
      } catch (const Failure& failure) {
        return failure.error();
      }
    });
  }

 private:
  static BootstrapSteps stepsOf(Job& job) {
    return {.listen =
                [&job](std::int64_t, const Secret&) {
                  RankFacts facts;
                  facts.place.machine = facts.hostname = facts.settings = "equal";
                  facts.addresses = {"::"};
                  const std::lock_guard lock(job.mutex);
                  facts.port = ++job.ports;
                  return facts;
                },
            .stopListening = [] {},
            .checkFacts = [](const std::vector<RankFacts>&) {},
            .isGone =
                [&job](int, const RankFacts& facts) {
                  const std::lock_guard lock(job.mutex);
                  return job.gone.contains(facts.port);
                }};
  }

  StoreOfJob store_;
  Rendezvous rendezvous_;
};

TEST(Rendezvous, GivesTheFactsOfAllRanksOnceTheyHaveCome) {
  Job job;
  Rank zero(job, 0, 2);
  EXPECT_FALSE(zero->hasMet());
  std::future<Error> waiting = zero.meet({.timeout = kForEver});
  Rank one(job, 1, 2);
  EXPECT_EQ(one->meet({.timeout = kForEver}).at(0).port, 1);
  EXPECT_FALSE(waiting.get());
  EXPECT_TRUE(zero->hasMet());
  EXPECT_EQ(zero->meet({.timeout = kForEver}).at(1).port, 2);
  EXPECT_EQ(zero->absent(), std::vector<int>{});
  EXPECT_TRUE(StoreOfJob(job).has(zero->allMetKey()));
}

TEST(Rendezvous, NamesTheRanksThatHaveNotComeInTime) {
  Job job;
  Rank one(job, 1, 3);
  const Error error = one.meet({.timeout = kShort}).get();
  EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  EXPECT_EQ(error.ranks(), (std::vector{0, 2}));
  EXPECT_NE(error.text().find("after 20 ms rank(s) 0, 2 of 3 had not made the group"), std::string::npos)
      << error.text();
  EXPECT_EQ(one->absent(), (std::vector{0, 2}));
}

TEST(Rendezvous, ServesSeveralWaitsWithAPatienceEach) {
  Job job;
  Rank zero(job, 0, 2);
  std::future<Error> patient = zero.meet({.timeout = kForEver});
  EXPECT_EQ(zero.meet({.timeout = kShort}).get().kind(), ErrorKind::Timeout);
  Rank one(job, 1, 2);
  EXPECT_FALSE(one.meet({.timeout = kForEver}).get());
  EXPECT_FALSE(patient.get());
}

TEST(Rendezvous, CallsRanksDeadThatCameAndStayAway) {
  Job job;
  job.gone = {1};  // the port of the first to listen
  Rank one(job, 1, 2);
  Rank zero(job, 0, 2);
  const Error error = zero.meet({.timeout = kForEver, .forDead = kShort}).get();
  EXPECT_EQ(error.kind(), ErrorKind::PeerDied);
  EXPECT_EQ(error.ranks(), std::vector{1});
  EXPECT_NE(error.text().find("for 20 ms nobody has listened"), std::string::npos) << error.text();
}

TEST(Rendezvous, WaitsForADeadRankThatIsStartedAgain) {
  Job job;
  job.gone = {1};
  std::make_unique<Rank>(job, 1, 2).reset();
  Rank zero(job, 0, 2);
  std::future<Error> waiting = zero.meet({.timeout = kForEver});
  Rank again(job, 1, 2);  // sits in a later generation, to which the other one moves on
  EXPECT_FALSE(again.meet({.timeout = kForEver}).get());
  EXPECT_FALSE(waiting.get());
  EXPECT_EQ(zero->generation(), again->generation());
}

TEST(Rendezvous, EndsItsWaitsByTheFirstErrorThatBreaksThemOff) {
  Job job;
  Rank zero(job, 0, 2);
  std::future<Error> waiting = zero.meet({.timeout = kForEver});
  zero->breakOff(makeError(ErrorKind::Aborted, "the first"));
  zero->breakOff(makeError(ErrorKind::Aborted, "the second"));
  EXPECT_EQ(waiting.get().text(), "the first");
  EXPECT_EQ(zero.meet({.timeout = kForEver}).get().text(), "the first");
}

TEST(Rendezvous, EndsByTheErrorThatAnotherRankHasLeftInTheStore) {
  Job job;
  Rank zero(job, 0, 2);
  StoreOfJob(job).set(zero->errorKey(), std::string("rank 1 is broken") + Bootstrap::kErrorEnd);
  const Error error = zero.meet({.timeout = kForEver}).get();
  EXPECT_EQ(error.kind(), ErrorKind::PeerLeft);
  EXPECT_NE(error.text().find("rank 1 is broken"), std::string::npos);
}

TEST(Rendezvous, HandsOnWhatTheStoreThrows) {
  Job job;
  Rank zero(job, 0, 2);
  {
    const std::lock_guard lock(job.mutex);
    job.isStoreLost = true;
  }
  EXPECT_THROW(zero->meet({.timeout = kForEver}), std::runtime_error);
}

// The next life of such a rank begins a generation for all. One that has left goes on counting, and would be alone.
TEST(Rendezvous, DoesNotLeaveInGoodOrderAfterAWaitInVain) {
  Job job;
  {
    Rank zero(job, 0, 2);
    EXPECT_EQ(zero.meet({.timeout = kShort}).get().kind(), ErrorKind::Timeout);
    zero->leave();
  }
  Rank zero(job, 0, 2);
  Rank one(job, 1, 2);
  std::future<Error> meeting = zero.meet({.timeout = kForEver});
  EXPECT_FALSE(one.meet({.timeout = kForEver}).get());
  EXPECT_FALSE(meeting.get());
}

}  // namespace
}  // namespace fairring
