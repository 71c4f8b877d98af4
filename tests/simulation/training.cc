#include "training.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <random>

#include "plan/cost_rows.h"
#include "simulation/training_steps.h"

namespace fairring::simulation {

namespace {

constexpr double kBeginSeconds = 1e-3;
constexpr std::uint64_t kStagingBytes = 50ULL << 20;
constexpr std::uint64_t kLeastStagingBytes = 2 << 20;  // of small staging: all clusters have slices that fit
constexpr std::uint64_t kPackets = 100'000;            // to each rail peer

double share(std::uint64_t bits) { return static_cast<double>(bits >> 11) / 9007199254740992.0; }

double between(std::mt19937_64& random, double least, double most) { return least + share(random()) * (most - least); }

std::vector<Place> placesOf(const Training& training) {
  std::vector<Place> places;
  for (int machine = 0; machine < training.machines; ++machine) {
    for (int rank = 0; rank < training.ranks; ++rank) places.push_back({concat("machine", machine), "site"});
  }
  return places;
}

bool isOf(const Trouble& trouble, std::initializer_list<Trouble::Kind> kinds) {
  return std::ranges::find(kinds, trouble.kind) != kinds.end();
}

std::uint64_t stagingOf(const Training& training) {
  if (training.trouble.kind != Trouble::Kind::SmallStaging) return kStagingBytes;
  const double bytes = static_cast<double>(training.bucketBytes) / training.trouble.factor;
  return std::max(kLeastStagingBytes, static_cast<std::uint64_t>(bytes));
}

WorldSettings settingsOf(const Training& training) {
  WorldSettings settings{.places = placesOf(training),
                         .planner = {stagingOf(training), 25ULL << 20, builtInRows("tcp", "tcp")},
                         .movesBytes = false,
                         .records = true};
  settings.costs.network.bytesPerSecond = training.bytesPerSecond * NetworkCosts::kPayload;
  settings.planner.rows[1].bytesPerSecond = training.bytesPerSecond / training.ranks;
  return settings;
}

class Course {
 public:
  explicit Course(const Training& training) : training_(training), world_(settingsOf(training)) {
    const Trouble& trouble = training.trouble;
    if (isOf(trouble, {Trouble::Kind::SlowLink, Trouble::Kind::LossyLink}))
      world_.slowLink(trouble.who, trouble.factor);
    if (trouble.kind == Trouble::Kind::SlowCore) world_.slow(trouble.who, trouble.factor);
  }

  Trained run(const std::string& name) {
    const TrainingSteps steps{
        .steps = training_.steps,
        .bucketBytes = std::vector(static_cast<std::size_t>(training_.buckets), training_.bucketBytes),
        .computed = [this](int rank, int step, int bucket) { return computed(rank, step, bucket); }};
    const Time end = trained(world_, steps, ofSeconds(kBeginSeconds)).back();
    Trained outcome;
    outcome.stepSeconds = (secondsOf(end) - kBeginSeconds) / training_.steps;
    for (int rank = 0; rank < world_.size(); ++rank) {
      outcome.facts.push_back(factsOf(rank, name));
      outcome.records.push_back(recordsOf(rank));
    }
    return outcome;
  }

 private:
  Time computed(int rank, int step, int bucket) const {
    double seconds = isInput(rank) ? training_.trouble.factor * stepSeconds() : 0.0;
    for (int before = 0; before <= bucket; ++before) seconds += secondsOfBucket(rank, step, before);
    return ofSeconds(seconds);
  }

  double stepSeconds() const { return training_.bucketSeconds * training_.buckets; }

  bool isInput(int rank) const {
    return training_.trouble.kind == Trouble::Kind::LateInput && training_.trouble.who == rank;
  }

  // Drawn from where it stands, so that a trouble changes nothing else.
  double secondsOfBucket(int rank, int step, int bucket) const {
    std::seed_seq place{static_cast<std::uint32_t>(training_.seed), static_cast<std::uint32_t>(rank),
                        static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(bucket)};
    std::mt19937_64 random(place);
    const Trouble& trouble = training_.trouble;
    const bool isLate =
        (isOf(trouble, {Trouble::Kind::LateRank, Trouble::Kind::BusyCore}) && trouble.who == rank) ||
        (trouble.kind == Trouble::Kind::LateBucket && trouble.who == rank && trouble.bucket == bucket) ||
        (trouble.kind == Trouble::Kind::LateMachine && trouble.who == rank / training_.ranks);
    return training_.bucketSeconds * (isLate ? trouble.factor : 1.0) * (1 + training_.unevenness * share(random()));
  }

  // By which a machine's clock is ahead. Drawn, up to an hour.
  std::int64_t ahead(int rank) const {
    std::mt19937_64 random(training_.seed + 1 + static_cast<std::uint64_t>(rank / training_.ranks));
    return static_cast<std::int64_t>(share(random()) * 3.6e12);
  }

  TraceFacts factsOf(int rank, const std::string& name) {
    TraceFacts facts;
    facts.group = name;
    facts.rank = rank;
    for (const Place& place : placesOf(training_)) {
      facts.machines.push_back(place.machine);
      facts.hosts.push_back("host" + place.machine.substr(7));
    }
    facts.stagingBytes = stagingOf(training_);
    facts.processor = processorOf(rank);
    for (const int peer : world_.planner().peersOf(rank)) {
      facts.packets[peer] = {.sent = kPackets,
                             .again = isLossy(rank) || isLossy(peer) ? kPackets / 50 : kPackets / 50'000};
      facts.clockLeads[peer] =
          ahead(rank) - ahead(peer) + static_cast<std::int64_t>(NetworkCosts().latencySeconds * 1e9);
    }
    facts.now = (world_.now() + Time(ahead(rank))).count();
    return facts;
  }

  ProcessorTime processorOf(int rank) const {
    const Trouble& trouble = training_.trouble;
    constexpr std::uint64_t kRan = 1'000'000'000;
    const bool isBusy = trouble.kind == Trouble::Kind::BusyCore && trouble.who == rank;
    const double waits = isBusy ? trouble.factor - 1 : 0.01;  // as long as it computes longer
    return {.ran = kRan, .waited = static_cast<std::uint64_t>(kRan * waits)};
  }

  bool isLossy(int rank) const {
    return training_.trouble.kind == Trouble::Kind::LossyLink && training_.trouble.who == rank / training_.ranks;
  }

  TraceRecords recordsOf(int rank) {
    TraceRecords records;
    world_.rank(rank).onLoop([&] { records = {world_.rank(rank).calls, world_.rank(rank).recorder->slices()}; });
    const auto move = [by = ahead(rank)](std::int64_t& time) {
      if (time != 0) time += by;
    };
    for (CallRecord& call : records.calls) {
      for (std::int64_t* time : {&call.made, &call.begun, &call.ended}) move(*time);
    }
    for (SliceRecord& record : records.slices) {
      for (std::int64_t* time : {&record.began, &record.offered, &record.heard, &record.ready, &record.released})
        move(*time);
    }
    return records;
  }

  const Training training_;
  World world_;
};

}  // namespace

Training drawnTraining(std::uint64_t seed, Trouble::Kind kind) {
  std::mt19937_64 random(seed);
  constexpr std::array kGbits{1.0, 10.0, 25.0};
  Training training;
  training.seed = seed;
  training.machines = 3 + static_cast<int>(random() % 3);
  training.ranks = 1 + static_cast<int>(random() % 3);
  training.buckets = 2 + static_cast<int>(random() % 5);
  training.bytesPerSecond = kGbits.at(random() % kGbits.size()) * 1e9 / 8;
  // What a bucket takes to be reduced, by the link, is half to twice what it takes to be computed.
  training.bucketSeconds = between(random, 2e-3, 20e-3);
  training.bucketBytes =
      static_cast<std::uint64_t>(between(random, 0.25, 1.0) * training.bucketSeconds * training.bytesPerSecond) / 4 * 4;
  training.unevenness = between(random, 0.0, 0.2);
  const bool isMachine = isOf({kind}, {Trouble::Kind::LateMachine, Trouble::Kind::SlowLink, Trouble::Kind::LossyLink});
  if (kind == Trouble::Kind::LateMachine) training.ranks = std::max(training.ranks, 2);
  const int count = isMachine ? training.machines : training.machines * training.ranks;
  training.trouble = {.kind = kind, .who = static_cast<int>(random() % static_cast<std::uint64_t>(count))};
  switch (kind) {
    case Trouble::Kind::None: break;
    case Trouble::Kind::LateRank:
    case Trouble::Kind::BusyCore:
    case Trouble::Kind::LateMachine: training.trouble.factor = between(random, 1.5, 4); break;
    case Trouble::Kind::LateInput: training.trouble.factor = between(random, 0.3, 2); break;
    case Trouble::Kind::LateBucket:
      training.trouble.factor = between(random, 3, 8);
      training.trouble.bucket = static_cast<int>(random() % static_cast<std::uint64_t>(training.buckets));
      break;
    case Trouble::Kind::LossyLink:
    case Trouble::Kind::SlowLink: training.trouble.factor = between(random, 2.5, 10); break;
    case Trouble::Kind::SlowCore: training.trouble.factor = between(random, 5, 50); break;
    case Trouble::Kind::SmallStaging: training.trouble.factor = between(random, 2, 20); break;
  }
  return training;
}

Trained carriedOut(const Training& training, const std::string& name) { return Course(training).run(name); }

}  // namespace fairring::simulation
