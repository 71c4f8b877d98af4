#include "group/seating.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "transport/challenge.h"

namespace fairring {
namespace {

constexpr const char* kClosed = "fairring/closed";    // all up to this one are
constexpr const char* kHighest = "fairring/highest";  // that anyone has taken a seat in
constexpr const char* kNobody = "-";

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

std::int64_t number(const std::string& text) { return decode(concat(text, " 0 ", kNobody)).generation; }

std::int64_t read(KeyValue& store, const char* key) { return number(store.compareSet(key, "", "0")); }

// Makes the number at least `least`; returns what it is then.
std::int64_t raise(KeyValue& store, const char* key, std::int64_t least) {
  std::string seen = store.compareSet(key, "", "0");
  while (number(seen) < least) seen = store.compareSet(key, seen, std::to_string(least));
  return number(seen);
}

}  // namespace

void Departures::note(const std::string& name) {
  const std::lock_guard lock(mutex_);
  names_.insert(name);
}

bool Departures::forget(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return names_.erase(name) > 0;
}

Seating::Seating(KeyValue& store, int rank, Departures& departures)
    : departures_(departures),
      seatKey_(concat("fairring/", rank, "/seat")),
      name_(keyedName(randomSecret(), "seat", "")) {
  const Seat last = decode(store.compareSet(seatKey_, "", encode({0, false, kNobody})));
  const bool endedWell = last.generation == 0 || departures_.forget(last.name);
  std::int64_t closed = read(store, kClosed);
  bool joins = !endedWell;
  if (!endedWell && (last.generation > closed || last.joined)) {
    closed = raise(store, kClosed, read(store, kHighest));
    joins = false;
  }
  sit(store, std::max(last.generation, closed) + 1, joins);
}

void Seating::sit(KeyValue& store, std::int64_t generation, bool joined) {
  raise(store, kHighest, generation);  // first: who closes all there are must not miss this one
  store.set(seatKey_, encode({generation, joined, name_}));
  generation_ = generation;
}

bool Seating::isClosed(KeyValue& store) const { return read(store, kClosed) >= generation_; }

void Seating::moveOn(KeyValue& store) { sit(store, read(store, kClosed) + 1, false); }

void Seating::leave() const { departures_.note(name_); }

}  // namespace fairring
