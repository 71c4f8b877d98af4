#include "backend/membership.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "exchange/tensorpipe_pipes.h"

namespace fairring {
namespace {

using Bytes = std::vector<std::uint8_t>;

Secret toSecret(const Bytes& bytes, const std::string& group) {
  Secret secret{};
  check(bytes.size() == secret.size(), ErrorKind::Configuration, "group ", group, ": its secret has ", bytes.size(),
        " bytes instead of ", secret.size(), ": is something else writing to the job's store?");
  std::ranges::transform(bytes, secret.begin(), [](std::uint8_t byte) { return std::byte{byte}; });
  return secret;
}

std::string listed(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > kShown ? concat(text, " and ", ranks.size() - kShown, " more") : text;
}

}  // namespace

Membership::Membership(const c10::intrusive_ptr<c10d::Store>& store, MembershipOptions options)
    : store_(store),
      options_(std::move(options)),
      runtime_(Runtime::acquire(options_.facts.address, options_.ports)),
      generation_(store_->add(concat("fairring/", options_.rank, "/generation"), 1)) {
  const Secret secret = agreeOnSecret();
  const GroupId id = makeGroupId(secret, concat(options_.name, "/", generation_));
  entrance_ = std::make_shared<Entrance>(id, secret, options_.rank);
  runtime_->acceptor().add(entrance_);
  RankFacts facts = options_.facts;
  facts.address = runtime_->address();
  facts.port = runtime_->acceptor().port();
  store_->set(factsKey(options_.rank), encode(facts));  // last: who reads it may connect at once
}

Membership::~Membership() {
  group_.reset();
  runtime_->acceptor().remove(entrance_);
}

std::string Membership::key(const std::string& name) const { return concat("fairring/", generation_, "/", name); }

std::string Membership::factsKey(int rank) const { return key(concat(rank, "/facts")); }

Secret Membership::agreeOnSecret() const {
  if (!options_.secret.empty()) return toSecret({options_.secret.begin(), options_.secret.end()}, options_.name);
  const Secret mine = randomSecret();
  Bytes offer;
  offer.reserve(mine.size());
  for (const std::byte byte : mine) offer.push_back(std::to_integer<std::uint8_t>(byte));
  return toSecret(store_->compareSet(key("secret"), Bytes{}, offer), options_.name);
}

Group& Membership::group(std::chrono::milliseconds timeout) {
  const std::lock_guard making(making_);
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw Failure(aborted_);
    if (group_) return *group_;
  }
  std::vector<RankFacts> facts = fetchFacts(timeout);
  GroupSettings settings{.name = options_.name,
                         .rank = options_.rank,
                         .transport = options_.transport,
                         .makeTensorPipe = makeTensorPipePipes,
                         .totalMemoryBytes = options_.totalMemoryBytes,
                         .sliceBytes = options_.sliceBytes};
  auto made = std::make_shared<Group>(runtime_->loop(), entrance_, std::move(settings), std::move(facts));
  const std::lock_guard lock(mutex_);
  if (aborted_) made->abort(aborted_);
  group_ = std::move(made);
  return *group_;
}

std::vector<RankFacts> Membership::fetchFacts(std::chrono::milliseconds timeout) const {
  std::vector<std::string> keys;
  keys.reserve(static_cast<std::size_t>(options_.size));
  for (int rank = 0; rank < options_.size; ++rank) keys.push_back(factsKey(rank));
  // A connection of its own: waiting on a store keeps all others off that store's connection.
  const c10::intrusive_ptr<c10d::Store> store = store_->clone();
  try {
    store->wait(keys, timeout);
  } catch (const c10::Error& e) {
    throw Failure(makeError(
        ErrorKind::Timeout, "rank ", options_.rank, " of group ", options_.name, ": after ", timeout.count(),
        " ms rank(s) ", listed(missingRanks(*store)), " of ", options_.size, " had not made the group (generation ",
        generation_, "): did they start, and can they reach the store? The store said: ", e.what_without_backtrace()));
  }
  std::vector<RankFacts> facts;
  facts.reserve(keys.size());
  for (const std::string& name : keys) facts.push_back(decodeFacts(store->get_to_str(name)));
  return facts;
}

std::vector<int> Membership::missingRanks(c10d::Store& store) const {
  std::vector<int> missing;
  for (int rank = 0; rank < options_.size; ++rank) {
    if (!store.check({factsKey(rank)})) missing.push_back(rank);
  }
  return missing;
}

void Membership::abort(const Error& error) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = error;
    group = group_;
  }
  if (group) group->abort(error);
}

Error Membership::error() const {
  const std::lock_guard lock(mutex_);
  if (aborted_) return aborted_;
  return group_ ? group_->error() : Error();
}

}  // namespace fairring
