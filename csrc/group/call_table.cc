#include "group/call_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fairring {

namespace {

constexpr std::uint64_t kFnvBasis = 14695981039346656037U;
constexpr std::uint64_t kFnvPrime = 1099511628211U;

std::int64_t nanoseconds(Loop::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (value >> shift & 0xff)) * kFnvPrime;
  return hash;
}

std::uint64_t digestOf(const Signature& signature) {
  if (signature.digest != 0) return signature.digest;
  std::uint64_t hash = kFnvBasis;
  for (const char letter : std::string_view(signature.text))
    hash = (hash ^ static_cast<unsigned char>(letter)) * kFnvPrime;
  return hash;
}

// One line, of bounded length.
std::string shown(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  if (text.size() > CallTable::kMaxText) text.resize(CallTable::kMaxText);
  return text;
}

}  // namespace

CallRecord CallTable::enter(const Signature& signature) {
  const std::lock_guard lock(mutex_);
  const bool isFirst = rows_.empty();
  const std::uint64_t before = isFirst ? kFnvBasis : rows_.back().record.hash;
  rows_.push_back({.record = {.number = isFirst ? 1 : rows_.back().record.number + 1,
                              .hash = mix(before, digestOf(signature)),
                              .text = signature.text,
                              .made = nanoseconds(loop_.now())},
                   .done = nullptr});
  while (rows_.size() > kept_ && rows_.front().isOver) rows_.pop_front();
  return rows_.back().record;
}

CallRecord CallTable::last() const {
  const std::lock_guard lock(mutex_);
  if (rows_.empty()) return {};
  CallRecord last = rows_.back().record;
  last.text = shown(last.text.str());
  return last;
}

std::uint64_t CallTable::count() const {
  const std::lock_guard lock(mutex_);
  return rows_.empty() ? 0 : rows_.back().record.number;
}

CallTable::Rows::const_iterator CallTable::firstTold() const {
  return rows_.end() - static_cast<std::ptrdiff_t>(std::min(rows_.size(), kTold));
}

bool CallTable::differs(std::uint64_t number, std::uint64_t hash) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(firstTold(), rows_.end(),
                     [&](const Row& row) { return row.record.number == number && row.record.hash != hash; });
}

std::vector<CallTable::Told> CallTable::told() const {
  const std::lock_guard lock(mutex_);
  std::vector<Told> calls;
  for (auto row = firstTold(); row != rows_.end(); ++row)
    calls.push_back({row->record.number, row->record.hash, shown(row->record.text.str())});
  return calls;
}

std::optional<CallTable::Difference> CallTable::differenceTo(const std::vector<Told>& peers) const {
  bool agreedBefore = false;
  for (const Told& mine : told()) {
    const auto their = std::ranges::find(peers, mine.number, &Told::number);
    if (their == peers.end()) continue;
    if (their->hash != mine.hash)
      return Difference{mine.number, mine.text, their->text, agreedBefore || mine.number == 1};
    agreedBefore = true;
  }
  return std::nullopt;
}

const CallTable::Row* CallTable::find(std::uint64_t number) const {
  const bool isThere = !rows_.empty() && number >= rows_.front().record.number && number <= rows_.back().record.number;
  return isThere ? &rows_[number - rows_.front().record.number] : nullptr;
}

CallTable::Row* CallTable::find(std::uint64_t number) { return const_cast<Row*>(std::as_const(*this).find(number)); }

void CallTable::begin(std::uint64_t number, Done done, std::chrono::milliseconds timeout) {
  assert(loop_.isCurrent() && done);
  const std::lock_guard lock(mutex_);
  Row& row = *find(number);
  row.done = std::move(done);
  ++underWay_;
  row.record.begun = nanoseconds(loop_.eventTime());
  begun_ = number;
  if (timeout.count() <= 0) return;
  row.timeout = timeout;
  row.due = loop_.now() + timeout;
  if (row.due < lookAt_) lookAt(row.due);
}

CallTable::Done CallTable::end(std::uint64_t number, const Error& error) {
  assert(loop_.isCurrent());
  const std::lock_guard lock(mutex_);
  Row* const row = find(number);
  if (row == nullptr || row->isOver) return nullptr;
  row->isOver = true;
  row->record.ended = nanoseconds(loop_.eventTime());
  row->record.failed = static_cast<bool>(error);
  if (isGood(error) && number > settled_) complete(*row);
  if (row->done) --underWay_;
  return std::exchange(row->done, nullptr);
}

// A small call may end before a large one that was made earlier.
void CallTable::complete(Row& row) {
  row.isComplete = true;
  for (const Row* next = find(completeUpTo_ + 1); next != nullptr && next->isComplete; next = find(completeUpTo_ + 1))
    ++completeUpTo_;
}

std::optional<CallTable::UnderWay> CallTable::underWay(std::uint64_t number) const {
  assert(loop_.isCurrent());
  const std::lock_guard lock(mutex_);
  const Row* const row = find(number);
  if (row == nullptr || !row->done) return std::nullopt;
  return UnderWay{{number, row->record.text, row->timeout}, row->isTouched, number <= settled_};
}

std::optional<CallRecord> CallTable::oldestUnderWay() const {
  assert(loop_.isCurrent());
  const std::lock_guard lock(mutex_);
  const auto oldest = std::ranges::find_if(rows_, [](const Row& row) { return static_cast<bool>(row.done); });
  return oldest == rows_.end() ? std::nullopt : std::optional(oldest->record);
}

void CallTable::untouched(const std::set<std::uint64_t>& numbers) {
  const std::lock_guard lock(mutex_);
  for (const std::uint64_t number : numbers) {
    if (Row* const row = find(number)) row->isTouched = false;
  }
}

std::uint64_t CallTable::settle() {
  assert(loop_.isCurrent());
  settled_ = begun_;
  return completeUpTo_;
}

std::vector<CallRecord> CallTable::records(std::size_t last) const {
  assert(loop_.isCurrent());
  const std::lock_guard lock(mutex_);
  std::vector<CallRecord> records;
  for (auto row = rows_.rbegin(); row != rows_.rend() && records.size() < last; ++row) {
    if (row->record.begun != 0) records.push_back(row->record);
  }
  std::ranges::reverse(records);
  return records;
}

void CallTable::close() {
  loop_.cancel(std::exchange(timer_, 0));
  while (takeDone()) continue;
}

CallTable::Done CallTable::takeDone() {
  const std::lock_guard lock(mutex_);
  const auto underWay = std::ranges::find_if(rows_, [](const Row& row) { return static_cast<bool>(row.done); });
  if (underWay == rows_.end()) return nullptr;
  --underWay_;
  return std::exchange(underWay->done, nullptr);
}

void CallTable::lookAt(Loop::Clock::time_point when) {
  loop_.cancel(timer_);
  lookAt_ = when;
  timer_ = loop_.at(when, [this] { look(); });
}

// The first that is told may end all others.
void CallTable::look() {
  timer_ = 0;
  lookAt_ = Loop::Clock::time_point::max();
  for (const TimedCall& expired : takeExpired()) {
    if (underWay(expired.number)) expired_(expired);
  }
  const std::lock_guard lock(mutex_);
  auto next = Loop::Clock::time_point::max();
  for (const Row& row : rows_) {
    if (row.done) next = std::min(next, row.due);
  }
  if (next < lookAt_) lookAt(next);
}

std::vector<TimedCall> CallTable::takeExpired() {
  const std::lock_guard lock(mutex_);
  const auto now = loop_.now();
  std::vector<TimedCall> expired;
  for (Row& row : rows_) {
    if (!row.done || row.due > now) continue;
    expired.push_back({row.record.number, row.record.text, row.timeout});
    row.due = Loop::Clock::time_point::max();
  }
  return expired;
}

}  // namespace fairring
