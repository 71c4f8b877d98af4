// An inquiry finds the rank that holds everybody up when a call is late. A rank whose call is late asks the ranks that
// it waits for. Each answers with its account (which call it is in, and for whom it waits), asks those that it waits
// for itself, and passes on what it hears. So the one that asked sees every chain to its end: a rank that waits for
// nobody, or one that does not answer. A rank that waits is never the culprit.
//
// It takes a bounded time: whoever has not answered within kAnswerTime is silent, and after kTime the rank whose call
// is late concludes from what it has heard. On the loop only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/loop.h"

namespace fairring {

// A rank's words about itself.
struct Account {
  int rank = -1;
  std::uint64_t edition = 0;    // a later one has a larger number
  std::uint64_t calls = 0;      // that its program has made
  std::string last;             // the text of its last call
  std::uint64_t inCall = 0;     // the first call that is under way; 0: none is
  std::string call;             // its text
  bool isOnDevice = false;      // it waits for inputs that come from this rank's device
  std::vector<int> waitsFor;    // in calls of all ranks
  std::vector<int> messagesOf;  // for whose message, or receive, its program waits
  std::vector<int> silent;      // of these: they have been asked, and have not answered
  std::vector<int> absent;      // of these: there is no connection to ask them by

  static void fields(auto& row, auto& account) {
    row(account.rank, account.edition, account.calls, account.last, account.inCall, account.call, account.isOnDevice,
        account.waitsFor, account.messagesOf, account.silent, account.absent);
  }
  std::set<int> awaited() const;
  bool operator==(const Account&) const = default;
};

class Inquiry {
 public:
  static constexpr std::chrono::milliseconds kAnswerTime{1'500};
  static constexpr std::chrono::milliseconds kTime{2'000};
  // Beyond so many known accounts, those of ranks at the ends of chains alone are passed on.
  static constexpr std::size_t kMostPassedOn = 32;

  enum class Reason : std::uint8_t {
    Silent,    // it answers nobody
    Behind,    // it answers, and its program has not made the call
    OnDevice,  // it answers, and its device has not come to the call
    NoWord,    // it answers, and its program has not sent the message, or not received it
    Absent,    // it has no connection with a rank that waits for it
    CutOff,    // it answers others, but not the rank that waits for it
    Delivered  // it has ended its part of the call, and something of it has not arrived
  };
  struct Finding {  // about one end of a chain
    Reason reason = Reason::Silent;
    int rank = -1;
    Account waiting;                 // of the first rank that waits for it
    std::optional<Account> account;  // its own, where it has answered anybody
  };
  using Findings = std::vector<Finding>;  // the worst reason first, then by rank

  struct Ways {
    std::function<Account()> account;                    // of this rank, as of now, but for its edition, silent, absent
    std::function<bool(int peer)> ask;                   // false: there is no connection to it
    std::function<void(int peer, const Account&)> tell;  // an account, to one that has asked
    std::function<void(const Findings&)> concluded;      // once for each inquiry of this rank
  };

  Inquiry(Loop& loop, Ways ways) : loop_(loop), ways_(std::move(ways)) {}
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;
  ~Inquiry() = default;  // after close(), where anything was asked; then anywhere

  void begin();  // a call of this rank is late
  void onQuestion(int peer);
  void onAccount(int from, Account account);
  void close();

 private:
  using Time = Loop::Clock::time_point;

  struct Known {
    Account account;
    Time heard;
  };
  struct Asked {
    Time when;
    bool hasAnswered = false;
  };

  void takePart();
  std::vector<int> silentOf(const Account& account, Time now) const;
  void becomes(Account own);
  void passOn(const Account& account, int from);
  bool isPassedOn(const Account& account) const;
  void lookSoon();
  void concludeIfClear();
  void conclude(const Findings& findings);
  Findings look(bool& isClear) const;
  const Account* accountOf(int rank) const;
  void onTime();
  void schedule();

  Loop& loop_;
  const Ways ways_;
  Account own_;
  std::map<int, Known> known_;  // of others
  std::map<int, Asked> asked_;
  std::set<int> askers_;
  std::optional<Time> concludesAt_;  // where a call of this rank is late
  std::optional<Time> looksAt_;      // whether everything is clear
  std::optional<Time> endsAt_;       // when this rank takes part no longer
  Loop::TimerId timer_ = 0;
};

}  // namespace fairring
