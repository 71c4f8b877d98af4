// How the ranks of one group find each other through the job's store, without waiting: whoever drives it looks again
// and again, at the pace that it likes, until all have met.
//
// Made with the group: takes a seat in a generation (seating.h), agrees on the secret with the ranks that are there
// (the first to come draws it), has this rank listen, and publishes its facts. Each look() then says whether ranks are
// missing, and takes the facts of all once they are there. Where an accident has closed the generation, a look moves on
// to a later one. A look asks the store a few questions, however many ranks there are: one store serves them all.
//
// Store keys, under the group's prefix: those of seating.h, and "fairring/<generation>/...": "secret", "<rank>/facts",
// "there", how many ranks have published them, "error", "met", how many have taken the facts, and "all", once all have.
//
// One thread at a time; key() and generation() any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "group/key_value.h"
#include "group/rank_facts.h"
#include "group/seating.h"
#include "transport/challenge.h"

namespace fairring {

struct BootstrapOptions {
  std::string name;  // the group's, equal on all ranks
  int rank = 0;
  int size = 1;
  std::string secret;  // 32 bytes, or empty: drawn, and shared through the store
};

// The secret that the options give; zeros where they give none.
Secret givenSecret(const BootstrapOptions& options);

// The steps that a rank takes while the group forms, in the order of the calls.
struct BootstrapSteps {
  std::function<RankFacts(std::int64_t generation, const Secret& secret)> listen;  // returns what to publish
  std::function<void()> stopListening;
  std::function<void(const std::vector<RankFacts>&)> checkFacts;  // throws Failure where they do not go together
  std::function<bool(int rank, const RankFacts&)> isGone;         // whether nobody listens where it says
};

class Bootstrap {
 public:
  enum class State : std::uint8_t {
    Missing,  // some have not published their facts in this generation: missing() names them
    Dead,     // nobody listens where `ranks` did
    MovedOn,  // the generation was closed: begun anew in a later one
    Met,
  };
  struct Look {
    State state;
    std::vector<int> ranks;  // the dead ones
  };

  Bootstrap(KeyValue& store, BootstrapOptions options, BootstrapSteps steps, Departures& departures);

  // Throws Failure: the group has failed (PeerLeft), facts that do not go together, a store that something else writes
  // to.
  Look look(KeyValue& store);

  // The ranks that have not published their facts in this generation. Asks the store some dozen questions for each.
  std::vector<int> missing(KeyValue& store) const;

  // The error of a group that has failed before this rank was connected to the others; empty where the store holds
  // none. Any thread that may use that store.
  static Error failureIn(KeyValue& store, const std::string& errorKey, const BootstrapOptions& options);

  const std::vector<RankFacts>& facts() const { return facts_; }  // of all ranks, once they have met
  std::int64_t generation() const { return seating_.generation(); }
  std::string key(const std::string& name) const;  // in the store, of this generation
  // Holds the errors with which ranks have failed, each behind the one before and followed by kErrorEnd.
  std::string errorKey() const { return key("error"); }
  static constexpr char kErrorEnd = '\0';
  std::string allMetKey() const { return key("all"); }  // is there once all ranks have taken the facts
  void leave() const { seating_.leave(); }              // in good order

 private:
  void publish(KeyValue& store);
  Secret agreeOnSecret(KeyValue& store) const;
  std::string factsKey(int rank) const;
  std::vector<std::string> factsKeys() const;  // by rank
  Look takeFacts(KeyValue& store);
  std::vector<int> deadRanks(const std::vector<RankFacts>& facts) const;

  const BootstrapOptions options_;
  const BootstrapSteps steps_;
  Seating seating_;
  std::vector<RankFacts> facts_;
};

}  // namespace fairring
