// The engine in virtual time: repeatable, right under faults, and able to say what a call takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "plan/cost_rows.h"
#include "simulation/world.h"
#include "trial.h"

namespace fairring {
namespace {

using testing::Fault;
using testing::play;
using testing::Script;
using testing::ScriptedCall;
using testing::Verdict;

constexpr std::array kPatterns{Pattern::AllReduce, Pattern::Reduce,  Pattern::Broadcast, Pattern::ReduceScatter,
                               Pattern::AllGather, Pattern::Scatter, Pattern::Gather,    Pattern::AllToAll};

Script twoByTwo(std::vector<ScriptedCall> calls, std::vector<Fault> faults = {}) {
  return {.seed = 1, .machines = {2, 2}, .calls = std::move(calls), .faults = std::move(faults)};
}

Script read(const std::string& text) {
  if (const auto script = testing::parsed(text)) return *script;
  throw std::invalid_argument("it is no script: " + text);
}

// The trial holds, and no rank fails.
Verdict holds(const Script& script) {
  Verdict verdict = play(script);
  EXPECT_TRUE(verdict) << script.text() << ": " << verdict.broken;
  EXPECT_FALSE(verdict.failed) << script.text();
  return verdict;
}

// The trial holds, and typed errors tell what was done to the ranks.
void endsWithErrors(const Script& script) {
  const Verdict verdict = play(script);
  EXPECT_TRUE(verdict) << script.text() << ": " << verdict.broken;
  EXPECT_TRUE(verdict.failed) << script.text();
}
void endsWithErrors(const std::string& text) { endsWithErrors(read(text)); }

TEST(Simulation, ScriptsOfManySeedsHold) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Verdict verdict = play(testing::drawn(seed));
    EXPECT_TRUE(verdict) << "seed " << seed << ": " << verdict.broken << "\n" << testing::drawn(seed).text();
  }
}

TEST(Simulation, TheSameSeedTakesTheSameCourse) {
  for (std::uint64_t seed = 100; seed < 110; ++seed) {
    const Verdict once = play(testing::drawn(seed));
    const Verdict again = play(testing::drawn(seed));
    EXPECT_EQ(once.events, again.events);
    EXPECT_EQ(once.seconds, again.seconds);
    EXPECT_EQ(once.bits, again.bits);
  }
}

TEST(Simulation, ADeathInACallIsATypedErrorOfAllOthers) {
  endsWithErrors(twoByTwo({{Pattern::AllReduce, -1, 60'000}}, {{Fault::Kind::Kill, 3, 0, 2'000, 0}}));
}

// Those without what a rank refused get an error that names it, as the judge demands; the calls around it go on.
TEST(Simulation, ARankWithoutMemoryForItsPartEndsThatCallAlone) {
  for (const Pattern pattern : kPatterns) {
    ScriptedCall refused{.pattern = pattern, .elements = 5'000, .refuser = 1};
    if (hasRoot(refused.pattern)) refused.root = 3;
    holds(twoByTwo({{Pattern::AllReduce, -1, 60'000}, refused, {Pattern::AllReduce, -1, 9}}));
  }
}

TEST(Simulation, UnevenAllToAllsAndSparseCallsAreRightAmongOthersAndWithLanesThatBreak) {
  Script script = twoByTwo({{.pattern = Pattern::AllToAll, .elements = 6'000, .form = testing::Form::Uneven},
                            {Pattern::AllReduce, -1, 60'000},
                            {.elements = 6'000, .form = testing::Form::Sparse},
                            {.elements = 9, .refuser = 1, .form = testing::Form::Sparse},
                            {.pattern = Pattern::AllToAll, .elements = 9, .form = testing::Form::Uneven}});
  const std::uint64_t bits = holds(script).bits;
  script.lanes = 2;
  script.faults = {{.kind = Fault::Kind::Break, .who = 0, .atMicros = 2'000}};
  EXPECT_EQ(holds(script).bits, bits);
}

TEST(Simulation, CallsOfSeveralTensorsAndOfUnevenBlocksAreRight) {
  std::vector<ScriptedCall> calls;
  for (const Pattern pattern : kPatterns) {
    ScriptedCall& call = calls.emplace_back(ScriptedCall{.pattern = pattern, .elements = 5'000, .tensors = 3});
    if (hasRoot(pattern)) call.root = 3;
    if (isByRank(pattern)) call.form = testing::Form::Uneven;
  }
  const Script script = twoByTwo(calls);
  holds(script);
  EXPECT_EQ(read(script.text()).text(), script.text());
}

TEST(Simulation, ALinkThatComesBackCostsTimeAlone) {
  const std::vector<ScriptedCall> calls{{Pattern::AllReduce, -1, 60'000}};
  const Verdict whole = holds(twoByTwo(calls));
  const Verdict cut = holds(twoByTwo(calls, {{Fault::Kind::Cut, 0, 1, 1'000, 900'000}}));
  EXPECT_GT(cut.seconds, 0.9);
  EXPECT_LT(whole.seconds, 0.9);
  EXPECT_EQ(cut.bits, whole.bits);
}

TEST(Simulation, LanesThatBreakCostTimeAlone) {
  Script script = twoByTwo({{Pattern::AllReduce, -1, 60'000}, {Pattern::AllToAll, -1, 6'000}});
  const std::uint64_t bits = holds(script).bits;
  script.lanes = 2;
  EXPECT_EQ(holds(script).bits, bits);
  for (const int rank : {0, 3, 0})
    script.faults.push_back({.kind = Fault::Kind::Break, .who = rank, .atMicros = 2'000 + 3'000 * rank});
  EXPECT_EQ(holds(script).bits, bits);
}

TEST(Simulation, ALinkThatStaysAwayIsATypedError) {
  endsWithErrors(twoByTwo({{Pattern::AllReduce, -1, 60'000}}, {{Fault::Kind::Sever, 0, 1, 1'000, 0}}));
}

Script members(std::vector<ScriptedCall> calls, std::vector<Fault> faults = {}) {
  Script script = twoByTwo(std::move(calls), std::move(faults));
  script.lanes = 2;
  script.heartbeatMs = 1'000;
  return script;
}

TEST(SimulatedMembers, TheirCallsHaveTheBitsThatTheEnginesHave) {
  const std::vector<ScriptedCall> calls{{Pattern::AllReduce, -1, 60'000}, {Pattern::AllToAll, -1, 6'000}};
  EXPECT_EQ(holds(members(calls)).bits, holds(twoByTwo(calls)).bits);
}

TEST(SimulatedMembers, ADeathAtAnyTimeIsBlamedOnWhoDied) {
  for (const std::int64_t at : {4'000, 8'000, 12'000}) {
    endsWithErrors(members({{Pattern::AllReduce, -1, 60'000}}, {{Fault::Kind::Kill, 2, 0, at, 0}}));
  }
}

TEST(SimulatedMembers, APauseThatHeartbeatsOutwaitCostsTimeAlone) {
  EXPECT_GT(holds(members({{Pattern::AllReduce, -1, 60'000}}, {{Fault::Kind::Pause, 1, 0, 8'000, 450'000}})).seconds,
            0.45);
}

TEST(SimulatedMembers, WhoStandsStillForLongerIsGivenUp) {
  endsWithErrors(members({{Pattern::AllReduce, -1, 60'000}}, {{Fault::Kind::Pause, 1, 0, 8'000, 9'000'000}}));
}

TEST(SimulatedMembers, MachinesThatAreCutOffNameOneAnother) {
  endsWithErrors(members({{Pattern::AllReduce, -1, 60'000}}, {{Fault::Kind::Sever, 0, 1, 10'000, 0}}));
}

TEST(SimulatedMembers, AStoreThatIsLostOnceTheyHaveMetIsNotMissed) {
  holds(members({{Pattern::AllReduce, -1, 60'000}}, {{Fault::Kind::Lose, 0, 0, 9'000, 0}}));
}

// The lower rank has nothing but its probes of the higher one's listener to find that out by.
TEST(SimulatedMembers, MachinesThatAreCutOffWhileTheyConnectNameOneAnother) {
  endsWithErrors("seed=5099 machines=1,1 heartbeat=400 calls=all-reduce:1 faults=sever:0:1:1949:0");
}

TEST(SimulatedMembers, ARefusedCallEndsWhicheverAllocationFails) {
  for (int allocation = 1; allocation < 400; ++allocation) {
    const Verdict verdict = play(read(concat(
        "seed=1 machines=2,1 staging=4096 slice=64 eager=4096 credit=8192 copied=512 waits=1 lanes=2 heartbeat=200 "
        "calls=all-reduce:20:-1:2,all-reduce:20:-1:2 faults=starve:0:0:4000:",
        allocation)));
    EXPECT_TRUE(verdict) << "allocation " << allocation << ": " << verdict.broken;
  }
}

// One dies while the group connects, another hears of it, fails and leaves, and a third, which was just connecting to
// that one, must not take it for the culprit.
TEST(SimulatedMembers, WhoLeavesBecauseOfADeathIsNotBlamedByThoseItWasNotConnectedTo) {
  endsWithErrors(
      "seed=5019 machines=2,2,1,2 interleaved=1 sites=1 staging=256 slice=8 eager=4 credit=4 copied=0 waits=0 lanes=2 "
      "heartbeat=400 calls=all-reduce:1 faults=kill:4:0:3685:11841");
}

// A lane of one that failed and left has come to a rank that has yet to make its first call, and nothing else.
TEST(SimulatedMembers, WhoLeavesBecauseOfADeathIsNotBlamedByThoseThatOnlyALaneReached) {
  endsWithErrors(
      "seed=28 machines=1,1,1 staging=512 slice=16 eager=8 credit=8 copied=512 heartbeat=800 calls=all-reduce:1 "
      "faults=idle:0:0:0:1358448,kill:1:0:5225:0");
}

// It has passed the challenge in its own eyes, while a crowd of strangers had the other side give its half-open
// connection up.
TEST(SimulatedMembers, WhoWasStoppedInTheChallengeBehindACrowdDoesNotTakeThePeerForDead) {
  holds(
      read("seed=182 machines=3,2,1 staging=512 slice=8 eager=8 credit=8 lanes=2 heartbeat=1600 calls=all-reduce:1 "
           "faults=pause:3:0:3574:1491983,stranger:5:3:300:0,stranger:0:3:3276:0"));
}

// It has published where it listens; its kernel goes on taking connections, and it makes none.
TEST(SimulatedMembers, WhoIsStoppedBeforeItConnectsIsGivenUp) {
  endsWithErrors(
      "seed=1134591477 machines=2,2,2 staging=256 slice=32 eager=4 credit=8 copied=512 heartbeat=400 "
      "calls=all-reduce:1 faults=late:0:0:0:898267,pause:5:0:11038:1000000000");
}

TEST(SimulatedMembers, WhatAProcessWroteBeforeItEndedArrives) {
  endsWithErrors(
      "seed=5001174 machines=3,2,1 staging=512 slice=16 eager=4 credit=4 copied=512 waits=1 lanes=1 heartbeat=400 "
      "calls=all-reduce:1,all-reduce:1,all-reduce:1,all-reduce:1,all-reduce:12 "
      "faults=pause:3:0:5262:851102,cut:0:2:5185:25540,pause:1:0:10836:1000000000,stranger:2:0:13964:0");
}

// Its calls have ended and it has said so, but what it sent last is still in its process.
TEST(SimulatedMembers, WhoIsStoppedWhileItLeavesIsGivenUpByThoseThatNeedIt) {
  endsWithErrors(
      "seed=20007911 machines=1,1,1 staging=512 slice=32 eager=1 credit=1 copied=512 heartbeat=800 "
      "calls=all-reduce:18582,broadcast:2425:2,all-to-all:5556 faults=pause:2:0:17942:1000000000");
}

TEST(SimulatedMembers, WhoIsKilledWhileItLeavesIsNamedWithItsMachine) {
  endsWithErrors(
      "seed=20003499 machines=1,1 staging=512 slice=32 eager=2 credit=6 copied=512 heartbeat=200 "
      "calls=all-reduce:55878 faults=kill:1:0:33375:4433,pause:1:0:8013:13238");
}

// While a member is made, and while it connects and plans its first calls.
TEST(SimulatedMembers, AnAllocationThatFailsEndsAllCallsOfAllRanks) {
  Script script{.seed = 1,
                .machines = {2, 1},
                .lanes = 2,
                .heartbeatMs = 1'000,
                .calls = {{Pattern::AllReduce, -1, 100},
                          {.elements = 20, .form = testing::Form::Sparse},
                          {.pattern = Pattern::AllToAll, .elements = 50}},
                .faults = {}};
  int failed = 0;
  for (const std::int64_t at : {500, 2'000}) {
    for (std::int64_t allocation = 1; allocation < 90; allocation += 3) {
      script.faults = {{.kind = Fault::Kind::Starve, .who = 1, .atMicros = at, .amount = allocation}};
      const Verdict verdict = play(script);
      EXPECT_TRUE(verdict) << script.text() << ": " << verdict.broken;
      failed += verdict.failed ? 1 : 0;
    }
  }
  EXPECT_GT(failed, 30) << "of 60";
}

// It finds its timer due before the answer of its peer, which is there.
TEST(SimulatedMembers, WhoWasStoppedTwiceItselfDoesNotTakeAPeerForStopped) {
  const Verdict verdict = play(
      read("seed=6774 machines=3 staging=512 slice=32 eager=1 credit=1 copied=512 heartbeat=1600 calls=all-reduce:1 "
           "faults=slow:0:0:2423:26,pause:0:0:1845:4526,pause:0:0:6861:1489075,pause:0:0:1499953:1692943"));
  EXPECT_TRUE(verdict) << verdict.broken;
}

TEST(SimulatedMembers, StrangersAreKeptOutAndChangeNothing) {
  const std::vector<ScriptedCall> calls{{Pattern::AllReduce, -1, 60'000}, {Pattern::AllToAll, -1, 6'000}};
  Script script = members(calls);
  script.heartbeatMs = 1'600;  // a crowd holds up who comes behind it for a second
  const std::uint64_t bits = holds(script).bits;
  for (int how = 0; how < 4; ++how) {
    for (const std::int64_t at : {1'000, 4'000, 9'000})
      script.faults.push_back({.kind = Fault::Kind::Stranger, .who = 1, .other = how, .atMicros = at});
  }
  EXPECT_EQ(holds(script).bits, bits);
}

TEST(SimulatedRounds, WhoIsLeftAfterADeathGoesOn) {
  for (const bool shrinks : {false, true}) {
    Script script = members({{}}, {{.kind = Fault::Kind::Kill, .who = 1, .atMicros = 9'000}});
    script.machines = {2, 2, 1};
    script.rounds = 3;
    script.shrinks = shrinks;
    const Verdict once = play(script);
    EXPECT_TRUE(once) << once.broken;
    EXPECT_GE(once.steps, 2U);  // of the last round, at least
    EXPECT_EQ(play(script).events, once.events);
  }
}

// Its control connection had come and gone before it said a word; its lane ends two seconds before that is judged.
TEST(SimulatedRounds, WhoHasFailedBeforeItWasHeardIsNotSaidToLive) {
  endsWithErrors(
      "seed=7000802 machines=1,1,1,1,1,1 staging=512 slice=32 eager=4 credit=12 copied=512 heartbeat=200 grouped=1 "
      "rounds=5 shrinks=1 calls=all-reduce:0 faults=pause:3:0:1654:800000:1,kill:4:0:2296:0:3,kill:5:0:4046:0:4");
}

// What must cross each machine's link, and no more. The second of two calls is timed.
TEST(Simulation, ALargeCallTakesWhatTheNetworkMustCarry) {
  simulation::WorldSettings settings{
      .places = {}, .planner = {50ULL << 20, 25ULL << 20, builtInRows("tcp", "tcp")}, .movesBytes = false};
  for (int rank = 0; rank < 16; ++rank) settings.places.push_back({"machine" + std::to_string(rank / 4), "site"});
  simulation::World world(settings);
  const auto tensor = std::make_unique_for_overwrite<std::byte[]>(25 << 20);
  const auto reducedOnAll = [&](std::uint64_t signature) {
    const simulation::Time begin = world.now();
    simulation::Time end = begin;
    for (int rank = 0; rank < world.size(); ++rank) {
      Call call{.signature = {.text = "all_reduce"}, .done = nullptr};
      call.operands.push_back({tensor.get(), (25 << 20) / sizeof(float), Reduction{.dtype = DType::Float32}});
      call.done = [&, rank](const Error& error) {
        EXPECT_FALSE(error);
        end = std::max(end, world.timeOf(rank));
      };
      world.submit(rank, std::move(call), signature);
    }
    world.finish();
    return simulation::secondsOf(end - begin);
  };
  reducedOnAll(1);
  const double seconds = reducedOnAll(2);
  const double bytes = 2.0 * (25 << 20) * 3 / 4;
  for (int machine = 0; machine < 4; ++machine)
    EXPECT_NEAR(static_cast<double>(world.network().bytesOf(machine)), 2 * bytes, 0.01 * bytes);
  const double least = bytes / settings.costs.network.bytesPerSecond;
  EXPECT_GT(seconds, least);
  EXPECT_LT(seconds, 1.1 * least);
  EXPECT_EQ(world.network().connectionsOf(0), 3U);
}

}  // namespace
}  // namespace fairring
