#include "backend/seating.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "transport/challenge.h"

namespace fairring {
namespace {

constexpr const char* kClosed = "fairring/closed";    // all up to this one are
constexpr const char* kHighest = "fairring/highest";  // that anyone has taken a seat in
constexpr const char* kNobody = "-";

// The memberships that this process left in good order, by name. A forked child takes them along.
std::mutex leftMutex;
std::set<std::string> left;

struct Seat {
  std::int64_t generation = 0;
  bool joined = false;
  std::string name;
};

std::string encode(const Seat& seat) { return concat(seat.generation, " ", seat.joined ? 1 : 0, " ", seat.name); }

Seat decode(const std::string& text) {
  Seat seat;
  std::istringstream words(text);
  words >> seat.generation >> seat.joined >> seat.name;
  check(!words.fail() && seat.generation >= 0, ErrorKind::Configuration, "the store holds '", text.substr(0, 80),
        "' where a rank's seat should be: is something else writing to the job's store?");
  return seat;
}

std::vector<std::uint8_t> toBytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string replace(c10d::Store& store, const std::string& key, const std::string& from, const std::string& to) {
  const std::vector<std::uint8_t> now = store.compareSet(key, toBytes(from), toBytes(to));
  return {now.begin(), now.end()};
}

std::int64_t number(const std::string& text) { return decode(concat(text, " 0 ", kNobody)).generation; }

std::int64_t read(c10d::Store& store, const char* key) { return number(replace(store, key, "", "0")); }

// Makes the number at least `least`; returns what it is then.
std::int64_t raise(c10d::Store& store, const char* key, std::int64_t least) {
  std::string seen = replace(store, key, "", "0");
  while (number(seen) < least) seen = replace(store, key, seen, std::to_string(least));
  return number(seen);
}

bool wasLeft(const std::string& name) {
  const std::lock_guard lock(leftMutex);
  return left.erase(name) > 0;
}

}  // namespace

Seating::Seating(c10d::Store& store, int rank)
    : seatKey_(concat("fairring/", rank, "/seat")), name_(keyedName(randomSecret(), "seat", "")) {
  const Seat last = decode(replace(store, seatKey_, "", encode({0, false, kNobody})));
  const bool endedWell = last.generation == 0 || wasLeft(last.name);
  std::int64_t closed = read(store, kClosed);
  bool joins = !endedWell;
  if (!endedWell && (last.generation > closed || last.joined)) {
    closed = raise(store, kClosed, read(store, kHighest));
    joins = false;
  }
  sit(store, std::max(last.generation, closed) + 1, joins);
}

void Seating::sit(c10d::Store& store, std::int64_t generation, bool joined) {
  raise(store, kHighest, generation);  // first: who closes all there are must not miss this one
  store.set(seatKey_, encode({generation, joined, name_}));
  generation_ = generation;
}

bool Seating::isClosed(c10d::Store& store) const { return read(store, kClosed) >= generation_; }

void Seating::moveOn(c10d::Store& store) { sit(store, read(store, kClosed) + 1, false); }

void Seating::leave() const {
  const std::lock_guard lock(leftMutex);
  left.insert(name_);
}

}  // namespace fairring
