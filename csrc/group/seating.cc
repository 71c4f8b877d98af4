#include "group/seating.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/fields.h"
#include "transport/challenge.h"

namespace fairring {
namespace {

constexpr const char* kClosed = "fairring/closed";    // all up to this one are
constexpr const char* kHighest = "fairring/highest";  // that anyone has taken a seat in

struct Seat {
  std::int64_t generation = 0;
  bool joined = false;
  std::string name;

  static void fields(auto& row, auto& seat) {
    row(seat.generation, seat.joined, seat.name);
    row.require(seat.generation >= 0);
  }
};

template <class Value>
Value storedIn(const std::string& text, const std::string& key) {
  return valueOf<Value>(text, ErrorKind::Configuration, "the store holds '", text.substr(0, 80), "' as ", key,
                        ", which no rank of fairring has written: is something else writing to the job's store?");
}

// The value that the store holds there, or `otherwise`, which it holds from then on.
template <class Value>
Value valueAt(KeyValue& store, const std::string& key, const Value& otherwise) {
  return storedIn<Value>(store.compareSet(key, "", toText(otherwise)), key);
}

std::int64_t read(KeyValue& store, const char* key) { return valueAt(store, key, std::int64_t{0}); }

// Makes the number at least `least`; returns what it is then.
std::int64_t raise(KeyValue& store, const char* key, std::int64_t least) {
  std::int64_t seen = read(store, key);
  while (seen < least) seen = storedIn<std::int64_t>(store.compareSet(key, toText(seen), toText(least)), key);
  return seen;
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
  const Seat last = valueAt(store, seatKey_, Seat{});
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
  raise(store, kHighest, generation);  // first: a rank that closes all there are must not miss this one
  store.set(seatKey_, toText(Seat{generation, joined, name_}));
  generation_ = generation;
}

bool Seating::isClosed(KeyValue& store) const { return read(store, kClosed) >= generation_; }

void Seating::moveOn(KeyValue& store) { sit(store, read(store, kClosed) + 1, false); }

void Seating::leave() const { departures_.note(name_); }

}  // namespace fairring
