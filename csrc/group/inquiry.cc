#include "group/inquiry.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fairring {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{10};

bool holds(const std::vector<int>& ranks, int rank) { return std::ranges::find(ranks, rank) != ranks.end(); }

Inquiry::Reason reasonOf(const Account& end, const Account& waiting) {
  if (holds(waiting.messagesOf, end.rank)) return Inquiry::Reason::NoWord;
  if (end.isOnDevice) return Inquiry::Reason::OnDevice;
  return end.calls < waiting.inCall ? Inquiry::Reason::Behind : Inquiry::Reason::Delivered;
}

}  // namespace

std::set<int> Account::awaited() const {
  std::set<int> ranks(waitsFor.begin(), waitsFor.end());
  ranks.insert(messagesOf.begin(), messagesOf.end());
  ranks.erase(rank);
  return ranks;
}

void Inquiry::begin() {
  if (!concludesAt_) concludesAt_ = loop_.now() + kTime;
  takePart();
  lookSoon();
}

void Inquiry::onQuestion(int peer) {
  takePart();
  askers_.insert(peer);
  ways_.tell(peer, own_);
  for (const auto& [rank, known] : known_) {
    if (rank != peer && isPassedOn(known.account)) ways_.tell(peer, known.account);
  }
}

// An account that was heard long ago may have changed, and is asked for again.
void Inquiry::takePart() {
  assert(loop_.isCurrent());
  const Time now = loop_.now();
  endsAt_ = now + kTime;
  std::erase_if(known_, [now](const auto& entry) { return now - entry.second.heard > kTime; });
  std::erase_if(asked_, [now](const auto& entry) { return now - entry.second.when > kTime; });
  Account own = ways_.account();
  for (const int peer : own.awaited()) {
    if (asked_.contains(peer)) continue;
    if (ways_.ask(peer)) {
      asked_.emplace(peer, Asked{now});
    } else {
      own.absent.push_back(peer);
    }
  }
  own.silent = silentOf(own, now);
  becomes(std::move(own));
  schedule();
}

std::vector<int> Inquiry::silentOf(const Account& account, Time now) const {
  std::vector<int> silent;
  const std::set<int> awaited = account.awaited();
  for (const auto& [peer, asked] : asked_) {
    if (!asked.hasAnswered && now - asked.when >= kAnswerTime && awaited.contains(peer)) silent.push_back(peer);
  }
  return silent;
}

void Inquiry::becomes(Account own) {
  own.edition = own_.edition;
  if (own == own_) return;
  own.edition = own_.edition + 1;
  own_ = std::move(own);
  passOn(own_, own_.rank);
}

void Inquiry::onAccount(int from, Account account) {
  assert(loop_.isCurrent());
  if (!endsAt_ || account.rank == own_.rank) return;
  if (const auto asked = asked_.find(from); asked != asked_.end() && account.rank == from) {
    asked->second.hasAnswered = true;
    Account own = own_;
    std::erase(own.silent, from);
    becomes(std::move(own));
  }
  const auto found = known_.find(account.rank);
  if (found != known_.end() && found->second.account.edition >= account.edition) return;
  const int rank = account.rank;
  const Known& known = known_.insert_or_assign(rank, Known{std::move(account), loop_.now()}).first->second;
  passOn(known.account, from);
  lookSoon();
}

void Inquiry::passOn(const Account& account, int from) {
  if (account.rank != own_.rank && !isPassedOn(account)) return;
  for (const int asker : askers_) {
    if (asker != from && asker != account.rank) ways_.tell(asker, account);
  }
}

bool Inquiry::isPassedOn(const Account& account) const {
  return known_.size() <= kMostPassedOn || account.awaited().empty() || !account.silent.empty() ||
         !account.absent.empty();
}

const Account* Inquiry::accountOf(int rank) const {
  if (rank == own_.rank) return &own_;
  const auto found = known_.find(rank);
  return found == known_.end() ? nullptr : &found->second.account;
}

// Walks all chains that begin here. Clear: each has been followed to its end.
Inquiry::Findings Inquiry::look(bool& isClear) const {
  struct End {
    Reason reason;
    const Account* waiting;
    const Account* account;
  };
  isClear = true;
  std::map<int, End> ends;
  const auto add = [&ends](int rank, const End& end) {
    const auto order = [](const End& one) { return std::pair(one.reason, one.waiting->rank); };
    const auto [found, isNew] = ends.try_emplace(rank, end);
    if (!isNew && order(end) < order(found->second)) found->second = end;
  };
  if (own_.isOnDevice && own_.awaited().empty()) add(own_.rank, {Reason::OnDevice, &own_, &own_});
  std::set<int> seen{own_.rank};
  std::vector<const Account*> toFollow{&own_};
  while (!toFollow.empty()) {
    const Account& waiting = *toFollow.back();
    toFollow.pop_back();
    for (const int rank : waiting.awaited()) {
      const Account* const account = accountOf(rank);
      const bool isSilent = holds(waiting.silent, rank);
      if (account == nullptr) {
        const bool isAbsent = holds(waiting.absent, rank);
        if (isAbsent || isSilent) add(rank, {isSilent ? Reason::Silent : Reason::Absent, &waiting, nullptr});
        isClear = isClear && (isAbsent || isSilent);
        continue;
      }
      if (account->awaited().empty()) {
        add(rank, {reasonOf(*account, waiting), &waiting, account});
      } else if (isSilent) {
        add(rank, {Reason::CutOff, &waiting, account});
      }
      if (seen.insert(rank).second) toFollow.push_back(account);
    }
  }
  Findings findings;
  for (const auto& [rank, end] : ends) {
    findings.push_back({end.reason, rank, *end.waiting, std::nullopt});
    if (end.account != nullptr) findings.back().account = *end.account;
  }
  std::ranges::sort(findings, {}, [](const Finding& one) { return std::pair(one.reason, one.rank); });
  return findings;
}

// Accounts come in swarms, and a look at many ranks takes a while.
void Inquiry::lookSoon() {
  if (!concludesAt_ || looksAt_) return;
  looksAt_ = loop_.now() + kBetweenLooks;
  schedule();
}

// Where all answer, and all wait, some may yet turn out not to hear each other.
void Inquiry::concludeIfClear() {
  bool isClear = false;
  const Findings findings = look(isClear);
  if (isClear && !findings.empty()) conclude(findings);
}

// This may end the group, and close this inquiry.
void Inquiry::conclude(const Findings& findings) {
  concludesAt_.reset();
  looksAt_.reset();
  ways_.concluded(findings);
}

void Inquiry::onTime() {
  timer_ = 0;
  const Time now = loop_.now();
  Account own = own_;
  own.silent = silentOf(own, now);
  if (own.silent != own_.silent) looksAt_ = now;
  becomes(std::move(own));
  if (looksAt_ && *looksAt_ <= now) {
    looksAt_.reset();
    if (concludesAt_) concludeIfClear();
  }
  if (concludesAt_ && *concludesAt_ <= now) {
    bool isClear = false;
    conclude(look(isClear));
  }
  if (endsAt_ && *endsAt_ <= now) return close();
  schedule();
}

void Inquiry::schedule() {
  loop_.cancel(std::exchange(timer_, 0));
  if (!endsAt_) return;
  Time next = *endsAt_;
  for (const std::optional<Time>& due : {concludesAt_, looksAt_}) {
    if (due) next = std::min(next, *due);
  }
  const Time now = loop_.now();
  for (const auto& [peer, asked] : asked_) {
    if (!asked.hasAnswered && asked.when + kAnswerTime > now) next = std::min(next, asked.when + kAnswerTime);
  }
  timer_ = loop_.at(next, [this] { onTime(); });
}

void Inquiry::close() {
  loop_.cancel(std::exchange(timer_, 0));
  concludesAt_.reset();
  looksAt_.reset();
  endsAt_.reset();
  known_.clear();
  asked_.clear();
  askers_.clear();
}

}  // namespace fairring
