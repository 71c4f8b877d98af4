// The engine of each rank in virtual time (simulation/world.h), with simulated channels or TCP's lanes between them.
// Watches what they give to the channels: nobody sends where no connection is, or more than the credit to a peer that
// has not begun.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "ranks.h"
#include "simulation/world.h"
#include "wires.h"

namespace fairring::testing {

class EngineRanks final : public Ranks {
 public:
  EngineRanks(const Script& script, const simulation::WorldSettings& settings);

  void at(Time time, simulation::EventQueue::Event event) override { world_.at(time, std::move(event)); }
  bool step() override { return world_.step(); }
  Time now() const override { return world_.now(); }
  Time timeOf(int rank) const override { return world_.timeOf(rank); }
  std::uint64_t events() const override { return world_.events(); }
  void submit(int rank, Call call, std::uint64_t number) override { world_.submit(rank, std::move(call), number); }
  void strike(const Fault& fault) override;
  bool isDead(int rank) const override { return world_.rank(rank).dead; }
  bool hasFailed(int rank) const override { return static_cast<bool>(world_.rank(rank).error); }
  std::string wrongIn(int rank, const Error& error) const override;
  std::string unrestOf(int rank) const override;
  std::string whomWaitsFor(int rank) override;
  std::string broken() const override { return broken_; }

 private:
  void watch(int from, int to, std::span<const Message> messages);

  mutable simulation::World world_;
  const std::uint64_t creditBytes_;
  std::vector<std::set<int>> peers_;
  std::map<std::tuple<int, int, SliceQueue>, std::map<std::uint64_t, std::uint64_t>> ahead_;  // bytes by slice
  std::string broken_;
  std::optional<Wires> wires_;  // where the script has lanes; the first to go: what it still sends is watched
};

}  // namespace fairring::testing
