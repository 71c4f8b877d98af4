#include "trial.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/all_to_all_call.h"
#include "engine/sparse_call.h"
#include "engine_ranks.h"
#include "members.h"
#include "memory.h"
#include "plan/cost_rows.h"
#include "rounds.h"

namespace fairring::testing {

namespace {

using simulation::ofSeconds;
using simulation::Time;

constexpr float kUntouched = -1000.0F;
constexpr float kAfterwards = -1e6F;
constexpr std::uint64_t kRowElements = 3;
constexpr std::uint64_t kMostEvents = 20'000'000;

std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

std::vector<Place> placesOf(const Script& script) {
  std::vector<Place> places;
  const auto add = [&](std::size_t machine) {
    const auto site = machine % static_cast<std::size_t>(script.sites);
    places.push_back({"machine" + std::to_string(machine), "site" + std::to_string(site)});
  };
  const int most = *std::ranges::max_element(script.machines);
  for (int i = 0; i < (script.interleaved ? most : 1); ++i) {
    for (std::size_t m = 0; m < script.machines.size(); ++m) {
      for (int r = 0; r < (script.interleaved ? (i < script.machines[m] ? 1 : 0) : script.machines[m]); ++r) add(m);
    }
  }
  return places;
}

simulation::WorldSettings settingsOf(const Script& script) {
  simulation::WorldSettings settings{
      .places = placesOf(script),
      .planner = {script.stagingKiB << 10, script.sliceKiB << 10, builtInRows("tcp", "tcp")}};
  settings.grouping = script.grouping();
  settings.limits = {script.eagerKiB << 10, script.creditKiB << 10};
  settings.copiedBytes = script.copiedKiB << 10;
  settings.shuffle = script.seed;
  return settings;
}

std::unique_ptr<Ranks> ranksOf(const Script& script) {
  if (script.heartbeatMs > 0) return std::make_unique<Members>(script, placesOf(script));
  return std::make_unique<EngineRanks>(script, settingsOf(script));
}

// One call on one rank: what it has, and what it gets, by block.
struct Held {
  std::vector<std::vector<float>> from;
  std::vector<std::vector<float>> to;
  std::vector<std::uint64_t> ownKeys;  // of a sparse call, whose rows are in the one block
  std::vector<std::uint64_t> keys;     // that came back
};

class Play {
 public:
  explicit Play(const Script& script) : script_(script), ranks_(ranksOf(script)) {
    const auto ranks = at(this->ranks());
    held_.resize(ranks);
    made_.resize(ranks);
    ended_.resize(ranks);
    isOver_.assign(ranks, std::vector<bool>(script.calls.size()));
    for (auto& ofRank : held_) ofRank.resize(script.calls.size());
    for (int rank = 0; rank < this->ranks(); ++rank) {
      auto late = static_cast<double>(mixed(script.seed * 131 + static_cast<std::uint64_t>(rank)) % 3000);
      for (const Fault& fault : script.faults) {
        if (fault.kind == Fault::Kind::Idle && fault.who == rank) late += static_cast<double>(fault.amount);
      }
      ranks_->at(ofSeconds(late * 1e-6), [this, rank] { makeCalls(rank); });
    }
    for (const Fault& fault : script.faults)
      ranks_->at(ofSeconds(static_cast<double>(fault.atMicros) * 1e-6), [this, fault] { strike(fault); });
  }

  Verdict run() {
    while (broken_.empty() && ranks_->events() < kMostEvents && ranks_->step()) broke(ranks_->broken());
    if (broken_.empty()) checkTheEnd();
    Verdict verdict{.broken = broken_,
                    .events = ranks_->events(),
                    .seconds = simulation::secondsOf(ranks_->now()),
                    .struck = struck_};
    for (const auto& [of, values] : results_) {
      for (const float value : values) verdict.bits = mixed(verdict.bits ^ std::bit_cast<std::uint32_t>(value));
    }
    for (int rank = 0; rank < ranks(); ++rank)
      verdict.failed = verdict.failed || (!ranks_->isDead(rank) && ranks_->hasFailed(rank));
    return verdict;
  }

 private:
  template <class... Parts>
  void broke(const Parts&... parts) {
    if (broken_.empty()) broken_ = concat(parts...);
  }

  int ranks() const { return script_.world(); }
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  float valueOf(int rank, std::size_t call, int block, std::uint64_t element) const {
    const std::uint64_t all = mixed(script_.seed ^ mixed((static_cast<std::uint64_t>(rank) << 40) + (call << 32) +
                                                         (static_cast<std::uint64_t>(block) << 24) + element));
    return static_cast<float>(all >> 40) / 16777216.0F - 0.5F;
  }
  bool isOfOneTensor(std::size_t call) const { return !isByRank(script_.calls[call].pattern) && !isToAll(call); }
  bool isToAll(std::size_t call) const { return script_.calls[call].pattern == Pattern::AllToAll; }
  bool isSparse(std::size_t call) const { return script_.calls[call].form == Form::Sparse; }

  // Of what the one rank has for the other, or of any block of another call.
  std::uint64_t elementsOf(std::size_t call, int from, int to) const {
    const ScriptedCall& scripted = script_.calls[call];
    if (scripted.form != Form::Uneven) return scripted.elements;
    const auto cell = (static_cast<std::uint64_t>(isToAll(call) ? from : 0) << 16) + static_cast<std::uint64_t>(to);
    return mixed(script_.seed ^ mixed((call << 32) + cell)) % (scripted.elements + 1);
  }

  // Where a tensor of a block ends: they become longer, and the first ones of a short block are empty.
  std::uint64_t endOf(std::size_t call, std::uint64_t tensor, std::uint64_t elements) const {
    const std::uint64_t tensors = script_.calls[call].tensors;
    return elements * (tensor + 1) * (tensor + 1) / (tensors * tensors);
  }

  // Every row of some ranks, and few of others: an eighth to all.
  bool hasRow(int rank, std::size_t call, std::uint64_t key) const {
    const std::uint64_t seed = mixed(script_.seed ^ mixed((call << 32) + static_cast<std::uint64_t>(rank)));
    return mixed(seed + key) % 8 <= seed % 8;
  }
  int blocksOf(std::size_t call) const { return isOfOneTensor(call) ? 1 : ranks(); }

  bool reads(int rank, std::size_t call, int block) const {
    const int root = script_.calls[call].root;
    switch (script_.calls[call].pattern) {
      case Pattern::AllGather:
      case Pattern::Gather: return block == rank;
      case Pattern::Broadcast:
      case Pattern::Scatter: return rank == root;
      default: return true;
    }
  }
  bool writes(int rank, std::size_t call, int block) const {
    const int root = script_.calls[call].root;
    switch (script_.calls[call].pattern) {
      case Pattern::Broadcast: return rank != root;
      case Pattern::Reduce:
      case Pattern::Gather: return rank == root;
      case Pattern::ReduceScatter:
      case Pattern::Scatter: return block == rank;
      default: return true;
    }
  }

  // Where a rank refuses its part: whether this one's result lacks that.
  bool isRefused(int rank, std::size_t call) const {
    const auto& [pattern, root, elements, refuser, form, tensors] = script_.calls[call];
    if (refuser < 0 || rank == refuser) return refuser >= 0;
    switch (pattern) {
      case Pattern::Broadcast:
      case Pattern::Scatter: return refuser == root;
      case Pattern::Reduce:
      case Pattern::Gather: return rank == root;
      default: return true;
    }
  }

  // Whether its result lacks bytes of the rank that refused. If not, it may hear nothing of the refusal.
  bool lacksRefused(int rank, std::size_t call) const {
    const auto& [pattern, root, elements, refuser, form, tensors] = script_.calls[call];
    if (rank == refuser) return true;
    switch (pattern) {
      case Pattern::Scatter: return elementsOf(call, root, rank) > 0;
      case Pattern::ReduceScatter: return elementsOf(call, rank, rank) > 0;
      case Pattern::Gather:
      case Pattern::AllGather: return elementsOf(call, refuser, refuser) > 0;
      default: return elements > 0;
    }
  }

  void makeCalls(int rank) {
    std::size_t& made = made_[at(rank)];
    while (made < script_.calls.size() && !ranks_->isDead(rank)) {
      const std::uint64_t chance = mixed(script_.seed * 31 + static_cast<std::uint64_t>(rank) * 1009 + made);
      const std::size_t before = script_.waits ? chance % (made + 1) : 0;
      if (ended_[at(rank)] < before) return;
      makeCall(rank, made++);
    }
    if (ended_[at(rank)] == script_.calls.size()) ranks_->callsAreOver(rank);
  }

  void makeCall(int rank, std::size_t index) {
    const ScriptedCall& scripted = script_.calls[index];
    Held& held = held_[at(rank)][index];
    for (int block = 0; block < blocksOf(index) && !isSparse(index); ++block) {
      auto& from = held.from.emplace_back(elementsOf(index, rank, block));
      for (std::uint64_t i = 0; i < from.size(); ++i) from[i] = valueOf(rank, index, block, i);
      held.to.emplace_back(isToAll(index) ? elementsOf(index, block, rank) : from.size(), kUntouched);
    }
    Call call{.pattern = scripted.pattern,
              .root = scripted.root,
              .signature = {},
              .done = [this, rank, index](const Error& error) { onDone(rank, index, error); }};
    const bool hasMemory = scripted.refuser != rank;
    if (!hasMemory) call.refused = makeError(ErrorKind::Refused, "rank ", rank, " refused its part: it has no memory");
    if (isSparse(index))
      call.parts = std::make_shared<SparseCall>(sparseOperand(rank, index, hasMemory), rank, script_.world());
    std::vector<CellPair> cells;
    for (std::size_t block = 0; block < held.from.size() && !isSparse(index); ++block) {
      std::vector<float>& from = held.from[block];
      std::vector<float>& to = held.to[block];
      if (isToAll(index)) {
        cells.push_back({hasMemory ? from.data() : nullptr, from.size() * sizeof(float),
                         hasMemory ? to.data() : nullptr, to.size() * sizeof(float)});
        continue;
      }
      const bool isAllReduce = scripted.pattern == Pattern::AllReduce;
      if (isAllReduce) to = from;
      if (!isAllReduce) call.blocks.emplace_back();
      const int number = static_cast<int>(block);
      const bool isRead = hasMemory && reads(rank, index, number);
      const bool isWritten = hasMemory && writes(rank, index, number);
      std::uint64_t begin = 0;
      for (std::uint64_t tensor = 0; tensor < scripted.tensors; ++tensor) {
        const std::uint64_t count = endOf(index, tensor, from.size()) - begin;
        const Reduction reduction{.dtype = DType::Float32};
        float* const result = isWritten ? to.data() + begin : nullptr;
        if (isAllReduce) {
          call.operands.push_back({result, count, reduction});
        } else {
          const float* const source = isRead ? from.data() + begin : nullptr;
          call.blocks.back().push_back({.from = source, .to = result, .elements = count, .reduction = reduction});
        }
        begin += count;
      }
    }
    if (!cells.empty()) call.parts = std::make_shared<AllToAllCall>(std::move(cells), rank);
    if (script_.late && !isSparse(index)) comeLater(rank, index, call);
    ranks_->submit(rank, std::move(call), index + 1);
  }

  // Every third call is made before its inputs are there. Inputs of different calls come in any order.
  void comeLater(int rank, std::size_t index, Call& call) {
    const std::uint64_t chance = mixed(script_.seed * 37 + static_cast<std::uint64_t>(rank) * 2003 + index);
    if (chance % 3 != 0) return;
    call.inputs = std::make_shared<Arrival>(1);
    Held& held = held_[at(rank)][index];
    auto& rows = script_.calls[index].pattern == Pattern::AllReduce ? held.to : held.from;
    const auto values = std::make_shared<std::vector<std::vector<float>>>(rows);
    for (auto& row : rows) std::ranges::fill(row, kUntouched);
    const Time when = ranks_->now() + ofSeconds(static_cast<double>(chance % 2000) * 1e-6);
    ranks_->at(when, [this, rank, index, &rows, values, inputs = call.inputs] {
      const AmpleMemory memory;
      for (std::size_t row = 0; row < rows.size() && !isOver_[at(rank)][index]; ++row)
        std::ranges::copy((*values)[row], rows[row].begin());
      inputs->come();
    });
  }

  // Who has no memory has no rows.
  SparseOperand sparseOperand(int rank, std::size_t index, bool hasMemory) {
    Held& held = held_[at(rank)][index];
    held.from.resize(1);
    held.to.resize(1);
    for (std::uint64_t key = 0; hasMemory && key < script_.calls[index].elements; ++key) {
      if (!hasRow(rank, index, key)) continue;
      held.ownKeys.push_back(key);
      for (std::uint64_t i = 0; i < kRowElements; ++i)
        held.from[0].push_back(valueOf(rank, index, 0, key * kRowElements + i));
    }
    SparseOperand operand{.keys = held.ownKeys,
                          .keysBelow = script_.calls[index].elements,
                          .values = reinterpret_cast<const std::byte*>(held.from[0].data()),
                          .rowElements = kRowElements,
                          .reduction = {.dtype = DType::Float32},
                          .result = nullptr};
    if (hasMemory) {
      operand.result = [&held](const std::vector<std::uint64_t>& keys) {
        held.keys = keys;
        held.to[0].assign(keys.size() * kRowElements, kUntouched);
        return reinterpret_cast<std::byte*>(held.to[0].data());
      };
    }
    return operand;
  }

  void onDone(int rank, std::size_t index, const Error& error) {
    Held& held = held_[at(rank)][index];
    ++ended_[at(rank)];
    if (isOver_[at(rank)][index]) broke("rank ", rank, ", call ", index, " ended twice");
    isOver_[at(rank)][index] = true;
    error ? checkError(rank, index, error) : check(rank, index);
    for (auto* blocks : {&held.from, &held.to}) {
      for (auto& block : *blocks) std::ranges::fill(block, kAfterwards);
    }
    const Time soon = ranks_->timeOf(rank) + Time(mixed(script_.seed + index) % 50'000);
    ranks_->at(soon, [this, rank] { makeCalls(rank); });
  }

  void checkError(int rank, std::size_t index, const Error& error) {
    const auto broke = [&](const std::string& why) {
      this->broke("rank ", rank, ", call ", index, " ended with ", name(error.kind()), ": ", error.text(), ": ", why);
    };
    if (error.kind() == ErrorKind::Refused) {
      const std::string refuser = concat("rank ", script_.calls[index].refuser, " refused its part");
      if (!isRefused(rank, index) || error.text().find(refuser) == std::string::npos) broke("nobody refused that");
      return;
    }
    if (!isStruck_) broke("nothing fatal was done");
    if (const std::string wrong = ranks_->wrongIn(rank, error); !wrong.empty()) broke(wrong);
  }

  void check(int rank, std::size_t index) {
    if (isRefused(rank, index) && lacksRefused(rank, index))
      broke("rank ", rank, ", call ", index, " ended well, though rank ", script_.calls[index].refuser, " refused");
    const Held& held = held_[at(rank)][index];
    if (isSparse(index) && held.keys != allKeys(index)) {
      return broke("rank ", rank, ", call ", index, " has ", held.keys.size(), " rows, expected are ",
                   allKeys(index).size());
    }
    for (int block = 0; block < blocksOf(index); ++block) {
      const auto& values = held.to[at(block)];
      if (!writes(rank, index, block)) {
        if (std::ranges::any_of(values, [](float value) { return value != kUntouched; }))
          broke("rank ", rank, ", call ", index, ": block ", block, " was written, which is not its own");
        continue;
      }
      const auto [first, isNew] = results_.try_emplace({index, resultOf(rank, index, block)}, values);
      const auto bitsOf = [](float value) { return std::bit_cast<std::uint32_t>(value); };
      if (!std::ranges::equal(first->second, values, {}, bitsOf, bitsOf))
        broke("rank ", rank, ", call ", index, ", block ", block, " has other bits than another rank");
      if (isNew) checkValues(rank, index, block, values);
    }
  }

  std::vector<std::uint64_t> allKeys(std::size_t index) const {
    std::vector<std::uint64_t> keys;
    for (std::uint64_t key = 0; key < script_.calls[index].elements; ++key) {
      for (int rank = 0; rank < ranks(); ++rank) {
        if (!hasRow(rank, index, key)) continue;
        keys.push_back(key);
        break;
      }
    }
    return keys;
  }

  // Blocks of different ranks that must be alike have equal numbers.
  int resultOf(int rank, std::size_t index, int block) const { return isToAll(index) ? rank * ranks() + block : block; }

  void checkValues(int rank, std::size_t index, int block, const std::vector<float>& values) {
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      const double expected = expectedOf(rank, index, block, i);
      if (!(std::abs(values[i] - expected) <= 1e-5 * ranks())) {
        return broke("rank ", rank, ", call ", index, ", block ", block, ", element ", i, " is ", values[i],
                     ", expected is ", expected);
      }
    }
  }

  double expectedOf(int rank, std::size_t index, int block, std::uint64_t i) const {
    switch (script_.calls[index].pattern) {
      case Pattern::AllToAll: return valueOf(block, index, rank, i);
      case Pattern::AllGather:
      case Pattern::Gather: return valueOf(block, index, block, i);
      case Pattern::Broadcast:
      case Pattern::Scatter: return valueOf(script_.calls[index].root, index, block, i);
      default: break;
    }
    double sum = 0;
    const std::uint64_t key = isSparse(index) ? held_[at(rank)][index].keys[i / kRowElements] : 0;
    const std::uint64_t element = isSparse(index) ? key * kRowElements + i % kRowElements : i;
    for (int from = 0; from < ranks(); ++from)
      sum += isSparse(index) && !hasRow(from, index, key) ? 0 : valueOf(from, index, block, element);
    return sum;
  }

  void strike(const Fault& fault) {
    isStruck_ = isStruck_ || script_.isFatal(fault);
    struck_.push_back(fault);
    ranks_->strike(fault);
  }

  void checkTheEnd() {
    if (ranks_->events() >= kMostEvents) return broke("after ", kMostEvents, " events there is no end");
    for (int rank = 0; rank < ranks(); ++rank) {
      if (ranks_->isDead(rank)) continue;
      if (ended_[at(rank)] < script_.calls.size()) stalled(rank);
      const std::string unrest = isStruck_ ? "" : ranks_->unrestOf(rank);
      if (!unrest.empty()) broke("rank ", rank, " ", unrest);
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      for (std::size_t call = 0; call < script_.calls.size() && !ranks_->isDead(rank); ++call) {
        if (isOver_[at(rank)][call]) checkUntouched(rank, call);
      }
    }
  }

  void stalled(int rank) {
    broke("rank ", rank, " waits for ever: ", ended_[at(rank)], " of ", script_.calls.size(),
          " calls have ended, and nothing will happen any more; it waits for ranks:", ranks_->whomWaitsFor(rank));
  }

  void checkUntouched(int rank, std::size_t call) {
    const Held& held = held_[at(rank)][call];
    for (const auto* blocks : {&held.from, &held.to}) {
      for (const auto& block : *blocks) {
        if (std::ranges::any_of(block, [](float value) { return value != kAfterwards; }))
          broke("rank ", rank, ", call ", call, ": a tensor was written after the call had ended");
      }
    }
  }

  const Script script_;
  std::vector<std::vector<Held>> held_;  // [rank][call]
  std::vector<std::size_t> made_;
  std::vector<std::size_t> ended_;         // calls, by rank
  std::vector<std::vector<bool>> isOver_;  // [rank][call]: not in order, since small ones overtake
  std::map<std::pair<std::size_t, int>, std::vector<float>> results_;
  bool isStruck_ = false;  // by something fatal
  std::vector<Fault> struck_;
  std::string broken_;
  std::unique_ptr<Ranks> ranks_;  // the last: what it has not ended when it goes may end calls
};

}  // namespace

Verdict play(const Script& script) {
  return script.rounds > 0 ? playRounds(script, placesOf(script)) : Play(script).run();
}

Script shrunk(Script script, const std::function<Verdict(const Script&)>& player, int mostPlays) {
  // In the same way: the beginning of the text, but for its numbers.
  const auto manner = [](const Verdict& verdict) {
    std::string text = verdict.broken;
    std::erase_if(text,
                  [](char letter) { return std::string_view("0123456789.- ").find(letter) != std::string_view::npos; });
    return text.substr(0, 30);
  };
  const std::string first = manner(player(script));
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (const Script& candidate : shortened(script)) {
      if (mostPlays-- <= 0) return script;
      const Verdict verdict = player(candidate);
      if (verdict || manner(verdict) != first) continue;
      script = candidate;
      shorter = true;
      break;
    }
  }
  return script;
}

}  // namespace fairring::testing
