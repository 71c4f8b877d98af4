#include "group/call_log.h"

#include <algorithm>

namespace fairring {

namespace {

constexpr std::uint64_t kFnvBasis = 14695981039346656037U;
constexpr std::uint64_t kFnvPrime = 1099511628211U;

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
  if (text.size() > CallLog::kMaxText) text.resize(CallLog::kMaxText);
  return text;
}

}  // namespace

CallLog::Entry CallLog::record(const Signature& signature) {
  const std::lock_guard lock(mutex_);
  const bool first = entries_.empty();
  const std::uint64_t before = first ? kFnvBasis : entries_.back().hash;
  const std::uint64_t number = first ? 1 : entries_.back().number + 1;
  entries_.push_back({number, mix(before, digestOf(signature)), signature.text, now_()});
  if (entries_.size() > kKept) entries_.pop_front();
  return entries_.back();
}

CallLog::Entry CallLog::last() const {
  const std::lock_guard lock(mutex_);
  if (entries_.empty()) return {};
  const Entry& last = entries_.back();
  return {last.number, last.hash, shown(last.text.str())};
}

std::uint64_t CallLog::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty() ? 0 : entries_.back().number;
}

bool CallLog::differs(std::uint64_t number, std::uint64_t hash) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(entries_, number, &Entry::number);
  return found != entries_.end() && found->hash != hash;
}

std::vector<CallLog::Told> CallLog::kept() const {
  const std::lock_guard lock(mutex_);
  std::vector<Told> calls;
  calls.reserve(entries_.size());
  for (const Entry& entry : entries_) calls.push_back({entry.number, entry.hash, shown(entry.text.str())});
  return calls;
}

std::optional<CallLog::Difference> CallLog::differenceTo(const std::vector<Told>& peers) const {
  const std::lock_guard lock(mutex_);
  bool agreedBefore = false;
  for (const Entry& mine : entries_) {
    const auto their = std::ranges::find(peers, mine.number, &Told::number);
    if (their == peers.end()) continue;
    if (their->hash != mine.hash) {
      return Difference{mine.number, shown(mine.text.str()), their->text, agreedBefore || mine.number == 1};
    }
    agreedBefore = true;
  }
  return std::nullopt;
}

}  // namespace fairring
