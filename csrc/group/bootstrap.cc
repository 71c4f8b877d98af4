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

void Bootstrap::publish(KeyValue& store) {
  const RankFacts facts = steps_.listen(generation(), agreeOnSecret(store));
  store.set(factsKey(options_.rank), toText(facts));  // last: who reads it may connect at once
}

Secret Bootstrap::agreeOnSecret(KeyValue& store) const {
  if (!options_.secret.empty()) return givenSecret(options_);
  return toSecret(store.compareSet(key("secret"), "", bytesOf(randomSecret())), options_.name);
}

Bootstrap::Look Bootstrap::look(KeyValue& store) {
  if (!facts_.empty()) return {State::Met, {}};
  while (there_ < options_.size && store.has(factsKey(there_))) ++there_;
  if (seating_.isClosed(store)) {
    steps_.stopListening();
    seating_.moveOn(store);
    there_ = 0;
    publish(store);
    return {State::MovedOn, {}};
  }
  if (const Error failure = failureIn(store, errorKey(), options_)) throw Failure(failure);
  if (there_ < options_.size) return {State::Missing, missingRanks(store)};
  return takeFacts(store);
}

Error Bootstrap::failureIn(KeyValue& store, const std::string& errorKey, const BootstrapOptions& options) {
  if (!store.has(errorKey)) return {};
  const std::string errors = store.get(errorKey);
  return makeError(
      ErrorKind::PeerLeft, "rank ", options.rank, " of group ", options.name,
      ": the group failed before this rank was connected to the others: ", errors.substr(0, errors.find(kErrorEnd)));
}

std::vector<int> Bootstrap::missingRanks(KeyValue& store) const {
  std::vector<int> missing;
  for (int rank = there_; rank < options_.size; ++rank) {
    if (!store.has(factsKey(rank))) missing.push_back(rank);
  }
  return missing;
}

Bootstrap::Look Bootstrap::takeFacts(KeyValue& store) {
  std::vector<RankFacts> facts;
  facts.reserve(static_cast<std::size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) {
    const std::string text = store.get(factsKey(rank));
    facts.push_back(valueOf<RankFacts>(text, ErrorKind::Connection, "the store holds facts of rank ", rank,
                                       " that are not of this version of fairring: '", shownOf(text),
                                       "'; use the same version on all ranks"));
  }
  // First: who finds these wrong leaves, and an address that nobody else can reach looks like a listener that refuses.
  steps_.checkFacts(facts);
  Look look{State::Dead, {}};
  for (int rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank && steps_.refuses(facts[static_cast<std::size_t>(rank)])) look.ranks.push_back(rank);
  }
  if (!look.ranks.empty()) return look;
  // Before any rank is connected to: a rank whose first call has ended knows that this is there.
  if (store.add(key("met"), 1) == options_.size) {
    store.set(allMetKey(), "1");
    store.has(allMetKey());  // answered once the key is set
  }
  facts_ = std::move(facts);
  return {State::Met, {}};
}

}  // namespace fairring
