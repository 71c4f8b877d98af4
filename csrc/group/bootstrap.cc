#include "group/bootstrap.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/fields.h"

namespace fairring {
namespace {

Secret toSecret(const std::string& bytes, const std::string& group) {
  Secret secret{};
  check(bytes.size() == secret.size(), ErrorKind::Configuration, "group ", group, ": its secret has ", bytes.size(),
        " bytes instead of ", secret.size(), ": is something else writing to the job's store?");
  std::ranges::copy(std::as_bytes(std::span(bytes)), secret.begin());
  return secret;
}

std::string bytesOf(const Secret& secret) {
  std::string text;
  text.reserve(secret.size());
  for (const std::byte byte : secret) text += static_cast<char>(byte);
  return text;
}

}  // namespace

Secret givenSecret(const BootstrapOptions& options) {
  return options.secret.empty() ? Secret{} : toSecret(options.secret, options.name);
}

Bootstrap::Bootstrap(KeyValue& store, BootstrapOptions options, BootstrapSteps steps, Departures& departures)
    : options_(std::move(options)), steps_(std::move(steps)), seating_(store, options_.rank, departures) {
  publish(store);
}

std::string Bootstrap::key(const std::string& name) const { return concat("fairring/", generation(), "/", name); }

std::string Bootstrap::factsKey(int rank) const { return key(concat(rank, "/facts")); }

std::vector<std::string> Bootstrap::factsKeys() const {
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) keys.push_back(factsKey(rank));
  return keys;
}

// A rank does this once in a generation: after an accident it sits in another (seating.h). So it is counted once.
void Bootstrap::publish(KeyValue& store) {
  const RankFacts facts = steps_.listen(generation(), agreeOnSecret(store));
  store.set(factsKey(options_.rank), toText(facts));  // last: a rank that reads it may connect at once
  store.add(key("there"), 1);                         // on the same connection: answered once they are
}

Secret Bootstrap::agreeOnSecret(KeyValue& store) const {
  if (!options_.secret.empty()) return givenSecret(options_);
  return toSecret(store.compareSet(key("secret"), "", bytesOf(randomSecret())), options_.name);
}

Bootstrap::Look Bootstrap::look(KeyValue& store) {
  if (!facts_.empty()) return {State::Met, {}};
  const bool allThere = store.add(key("there"), 0) >= options_.size;
  if (seating_.isClosed(store)) {
    steps_.stopListening();
    seating_.moveOn(store);
    publish(store);
    return {State::MovedOn, {}};
  }
  if (const Error failure = failureIn(store, errorKey(), options_)) throw Failure(failure);
  return allThere ? takeFacts(store) : Look{State::Missing, {}};
}

Error Bootstrap::failureIn(KeyValue& store, const std::string& errorKey, const BootstrapOptions& options) {
  if (!store.has(errorKey)) return {};
  const std::string errors = store.get(errorKey);
  return makeError(
      ErrorKind::PeerLeft, "rank ", options.rank, " of group ", options.name,
      ": the group failed before this rank was connected to the others: ", errors.substr(0, errors.find(kErrorEnd)));
}

// Halves what has a missing one until it is one.
std::vector<int> Bootstrap::missing(KeyValue& store) const {
  const std::vector<std::string> keys = factsKeys();
  std::vector<int> ranks;
  const auto search = [&](const auto& self, std::size_t first, std::size_t count) -> void {
    if (store.hasAll(std::span(keys).subspan(first, count))) return;
    if (count == 1) return ranks.push_back(static_cast<int>(first));
    self(self, first, count / 2);
    self(self, first + count / 2, count - count / 2);
  };
  search(search, 0, keys.size());
  return ranks;
}

Bootstrap::Look Bootstrap::takeFacts(KeyValue& store) {
  std::vector<RankFacts> facts;
  facts.reserve(static_cast<std::size_t>(options_.size));
  for (const std::string& text : store.getAll(factsKeys())) {
    facts.push_back(valueOf<RankFacts>(text, ErrorKind::Connection, "the store holds facts of rank ", facts.size(),
                                       " that are not of this version of fairring: '", shownOf(text),
                                       "'; use the same version on all ranks"));
  }
  // First: a rank that finds these wrong leaves, and an address that nobody else can reach looks like a listener that
  // refuses.
  steps_.checkFacts(facts);
  if (std::vector<int> dead = deadRanks(facts); !dead.empty()) return {State::Dead, std::move(dead)};
  // Before any rank is connected to: a rank whose first call has ended knows that this is there.
  if (store.add(key("met"), 1) == options_.size) {
    store.set(allMetKey(), "1");
    store.has(allMetKey());  // answered once the key is set
  }
  facts_ = std::move(facts);
  return {State::Met, {}};
}

// The next rank first: if all began with the same one, its listener would have to answer everybody at once.
std::vector<int> Bootstrap::deadRanks(const std::vector<RankFacts>& facts) const {
  std::vector<int> dead;
  for (int step = 1; step < options_.size; ++step) {
    const int rank = (options_.rank + step) % options_.size;
    if (steps_.isGone(rank, facts[static_cast<std::size_t>(rank)])) dead.push_back(rank);
  }
  std::ranges::sort(dead);
  return dead;
}

}  // namespace fairring
