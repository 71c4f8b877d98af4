#include "engine_group.h"

#include <cstring>
#include <numeric>

#include "base/error.h"

namespace fairring {

namespace {

constexpr std::chrono::seconds kTimeout{60};
constexpr std::uint64_t kStagingBytes = 50 << 20;  // the defaults of fairring/config.py
constexpr std::uint64_t kSliceBytes = 25 << 20;

std::vector<RankFacts> factsOfAll(Meeting& meeting, const Acceptor& acceptor) {
  RankFacts mine;
  mine.place.machine = std::to_string(meeting.machines()[static_cast<std::size_t>(meeting.rank())]);
  mine.hostname = "machine " + mine.place.machine;
  mine.addresses = acceptor.addresses();
  mine.port = acceptor.port();
  mine.settings = "defaults";
  std::vector<RankFacts> facts;
  for (const std::string& text : meeting.tell(toText(mine)))
    facts.push_back(valueOf<RankFacts>(text, ErrorKind::Connection, "a rank of the benchmark tells no facts"));
  return facts;
}

Secret sharedSecret(Meeting& meeting) {
  Secret secret = randomSecret();
  const auto all = meeting.tell({reinterpret_cast<const char*>(secret.data()), secret.size()});
  std::memcpy(secret.data(), all.front().data(), secret.size());
  return secret;
}

}  // namespace

EngineGroup::EngineGroup(Meeting& meeting, EngineThreads& threads, const Transport& transport)
    : threads_(threads), world_(meeting.world()), transport_(transport.name) {
  const Secret secret = sharedSecret(meeting);
  endpoint_ = std::make_shared<GroupEndpoint>(makeGroupId(secret, transport_), secret, meeting.rank());
  threads_.acceptor.add(endpoint_);
  GroupSettings settings{.name = transport_,
                         .rank = meeting.rank(),
                         .tuning = {.totalMemoryBytes = kStagingBytes, .sliceBytes = kSliceBytes},
                         .transports = {.rail = transport, .site = transport},
                         .failed = nullptr};
  std::vector<RankFacts> facts = factsOfAll(meeting, threads_.acceptor);
  group_ = std::make_unique<Group>(Threads{threads_.slices, threads_.vitals}, endpoint_, std::move(settings),
                                   std::move(facts));
}

EngineGroup::~EngineGroup() {
  group_.reset();
  threads_.acceptor.remove(endpoint_);
}

void EngineGroup::sum(std::span<float> tensor) {
  done_ = false;
  const auto isDone = [this] {
    const std::lock_guard lock(mutex_);
    return done_;
  };
  group_->submit({.operands = {{tensor.data(), tensor.size(), {.dtype = DType::Float32}}},
                  .timeout = kTimeout,
                  .signature = {concat("sum of ", tensor.size(), " Float32")},
                  .done =
                      [this](const Error& error) {
                        const std::lock_guard lock(mutex_);
                        done_ = true;
                        error_ = error;
                        changed_.notify_one();
                      }},
                 true);
  threads_.slices.loop().progressUntil(isDone, Loop::Clock::now() + kTimeout);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
  if (error_) throw Failure(error_);
}

std::vector<int> EngineGroup::ranks() const {
  std::vector<int> all(static_cast<std::size_t>(world_));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace fairring
