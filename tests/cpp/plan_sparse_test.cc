// The choice for sparse calls: the plan of the values, once the number of rows of each rank is known.
#include <gtest/gtest.h>

#include "plan/cost_rows.h"
#include "plan_machines.h"

namespace fairring {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

Planner plannerOf(int machines, int ranks) {
  return {onOneSite(std::vector<int>(static_cast<std::size_t>(machines), ranks)),
          {50 * kMiB, 25 * kMiB, builtInRows("tcp")}};
}

std::string planOf(int machines, std::uint64_t bytes, std::uint64_t most) {
  return describe(plannerOf(machines, 2).chooseSparse(bytes, most).plan);
}

TEST(SparsePlan, IsOneShotBetweenTwoMachinesThatShareFewRows) {
  EXPECT_EQ(planOf(2, 100 * kMiB, 50 * kMiB), "RS0 AR1 AG0");
  EXPECT_EQ(planOf(2, 100 * kMiB, 60 * kMiB), "RS0 AR1 AG0");
}

TEST(SparsePlan, IsTwoShotWhereManyMachinesShareTheirRows) {
  EXPECT_EQ(planOf(6, 600 * kMiB, 100 * kMiB), "RS0 AR1 AG0");
  EXPECT_EQ(planOf(6, 100 * kMiB, 100 * kMiB), "RS0 RS1 AG1 AG0");
}

// One slice is summed while the next one travels.
TEST(SparsePlan, IsTheOneOfFewestBytesWhereSumsTakeLessTimeThanTheNetwork) {
  EXPECT_EQ(planOf(2, 188 * kMiB, 150 * kMiB), "RS0 AR1 AG0") << "half of 200 000 rows on each of 2 x 2 ranks";
  EXPECT_EQ(planOf(2, 150 * kMiB, 150 * kMiB), "RS0 AR1 AG0");
  EXPECT_EQ(planOf(3, 188 * kMiB, 150 * kMiB), "RS0 RS1 AG1 AG0");
}

TEST(SparsePlan, CutsSlicesWithRoomForContributions) {
  for (const int machines : {1, 2, 5}) {
    const Planner planner = plannerOf(machines, 2);
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, kMiB, 700 * kMiB}) {
      const PlanChoice sparse = planner.chooseSparse(bytes, bytes);
      EXPECT_EQ(sparse.sliceBytes % 64, 0U);
      EXPECT_LE(3 * sparse.sliceStagingBytes, sparse.stagingBytes);
    }
  }
}

std::string formOf(const Planner& planner, const RowSpace& space, double density) {
  const auto rows = static_cast<std::uint64_t>(density * static_cast<double>(space.rows));
  const std::vector<std::uint64_t> counts(static_cast<std::size_t>(planner.topology().world()), rows);
  switch (planner.keyForm(space, counts)) {
    case KeyForm::Lists: return "lists";
    case KeyForm::BitsByRank: return "bits by rank";
    case KeyForm::BitsOfAll: return "bits of all";
  }
  return "";
}

TEST(KeyForm, FollowsFromHowManyRowsTheRanksHave) {
  struct Case {
    int machines;
    int ranks;
    RowSpace space;
    double density;
    const char* form;
  };
  for (const Case& one : {
           Case{2, 2, {200'000, 1024}, 0.001, "lists"},
           Case{2, 2, {200'000, 1024}, 0.5, "bits by rank"},
           Case{2, 4, {200'000, 1024}, 0.01, "lists"},
           Case{2, 4, {200'000, 1024}, 1, "bits of all"},
           Case{8, 8, {1'000'000, 4}, 0.0001, "lists"},
           Case{8, 8, {1'000'000, 4}, 0.01, "bits of all"},
           Case{8, 8, {1'000'000, 4}, 0.5, "bits of all"},
           Case{8, 8, {1'000'000, 4096}, 0.01, "lists"},
           Case{1, 4, {1'000'000, 8}, 0.3, "bits of all"},
           Case{1, 4, {1'000'000, 8}, 0.001, "lists"},
           Case{2, 1, {1ULL << 40, 4}, 1e-6, "lists"},
           Case{2, 1, {1'000'000, 0}, 0.5, "bits of all"},
       }) {
    EXPECT_EQ(formOf(plannerOf(one.machines, one.ranks), one.space, one.density), one.form)
        << one.machines << " x " << one.ranks << ", " << one.density << " of " << one.space.rows << " rows of "
        << one.space.rowBytes << " B";
  }
}

// For any overlap of ranks, keys and values together never take a tenth more than the whole table and a bit per row.
TEST(KeyForm, LetsNoCallMoveATenthMoreThanTheTable) {
  constexpr std::uint64_t kRows = 1'000'000;
  for (const int machines : {2, 3, 8}) {
    for (const int ranks : {1, 4, 8}) {
      const Planner planner = plannerOf(machines, ranks);
      for (const std::uint64_t rowBytes : {2, 4, 16, 64, 256, 1024}) {
        for (const double density : {0.001, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0}) {
          const double world = machines * ranks;
          const double keys = density * kRows * world;
          const double machine = std::min(density * ranks, 1.0) * kRows;
          const double all = std::min(machine * machines, 1.0 * kRows);
          const std::string form = formOf(planner, {kRows, rowBytes}, density);
          const double bits = kRows / 8.0;
          const auto bytes = static_cast<double>(rowBytes);
          double moved = 0;
          if (form == "bits of all") moved = bits + all * bytes;
          if (form == "lists") moved = 4 * keys + (machine + all) / 2 * bytes;
          if (form == "bits by rank") moved = bits * world + (machine + all) / 2 * bytes;
          EXPECT_LE(moved, 1.1 * (kRows * bytes + bits))
              << form << ": " << density << " of rows of " << rowBytes << " B, " << machines << " x " << ranks;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fairring
