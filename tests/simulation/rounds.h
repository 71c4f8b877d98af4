// A script whose group's members change: in each round some processes meet, agree on the last call that is complete
// everywhere, go back to it, and take some steps, until one of them dies, or all have taken theirs. Then the members of
// the next round are chosen among those that are left, by whoever watches them, as the user of shrink or reconfigure
// does. What a rank does for that is the code of a job: its roster, its member, its lineage; how they are put together
// is in backend/reconfiguring.cc, which needs torch, and this is its stand-in.
//
// A step is a call or two whose result is added to a number that follows from who took part in each step so far. So all
// who have the same steps have the same number. It must hold:
//   who meets learns the same as all others of that round, and they go back to the same step;
//   of those who have met in the round before all have a part in that, or none, and it is the last step that all have;
//   nobody who has a part in it goes back behind what a meeting agreed on that ended well there;
//   where nothing fatal was done, all end their round well; else all end it soon after that;
//   an error names who is to blame, but for one that says whom its rank has waited for;
//   in the end the members have the same steps, and their number.
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/call.h"
#include "group/lineage.h"
#include "group/roster.h"
#include "processes.h"
#include "trial.h"

namespace fairring::testing {

class Rounds {
 public:
  explicit Rounds(const Script& script, const std::vector<Place>& places);
  ~Rounds();
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  Verdict run();

 private:
  using Time = simulation::Time;
  using Mark = std::pair<std::uint64_t, std::uint64_t>;  // groups before, and calls of the group
  using Numbers = std::vector<std::int64_t>;
  struct Group;
  struct Player;
  struct Tensors {  // of a call, by block
    std::vector<Numbers> from;
    std::vector<Numbers> to;
  };
  struct Step {
    Pattern pattern = Pattern::AllReduce;
    int root = 0;
    std::size_t elements = 0;
  };
  struct State {
    std::vector<std::vector<int>> log;  // who took part in each step
    std::int64_t number = 1;
  };

  Player& player(int process) const { return *players_[static_cast<std::size_t>(process)]; }
  template <class... Parts>
  void broke(const Parts&... parts);

  // What a process does.
  void enter(Player& self);
  void reconfigure(Player& self);
  void shrink(Player& self);
  void shrinkOnceIdle(Player& self, const std::vector<int>& ranks, const std::string& purpose);
  std::shared_ptr<Group> makeGroup(Player& self, const Roster& roster, const std::string& name);
  void leave(Player& self, const std::shared_ptr<Group>& group);
  void meet(Player& self, const std::shared_ptr<Group>& group);
  void goBack(Player& self);
  void catchUp(Player& self);
  void takeStateOf(Player& self, int root);
  void keep(Player& self, std::size_t state);
  Step stepAfter(std::size_t state, std::size_t members) const;
  void takeStep(Player& self, int index);  // in the round
  static Call callOf(const Step& step, int rank, Tensors& tensors);
  void broadcastSum(Player& self, int index, const std::shared_ptr<Tensors>& tensors);
  void stepIsDone(Player& self, int index, const Tensors& tensors);
  void make(Player& self, const std::shared_ptr<Group>& group, Call call, std::function<void(const Error&)> then);
  void report(Player& self, const Error& error);

  // Who watches them.
  void beginRound();
  bool isRoundOver();
  void endRound();
  std::vector<int> nextMembers();
  std::vector<int> leftAfterShrink() const;
  void strikeIn(int step);  // the faults whose time counts from now on
  void strike(const Fault& fault);
  void rememberWhoHasMet();
  void checkPart(const Player& self, bool hasPart);
  void checkAgreed(Player& self, bool hasPart);
  void checkBlame(const Player& self, const Group& group, const Error& error);
  void checkLate();
  void checkHang();
  void checkTheEnd(std::vector<int> members);
  std::size_t after(std::size_t state, const std::vector<int>& members);
  std::int64_t shareOf(int process, std::size_t state) const;
  std::int64_t resultOf(std::size_t state, const std::vector<int>& members) const;

  const Script script_;
  Processes processes_;
  std::vector<std::unique_ptr<Player>> players_;
  std::vector<State> states_{{}};                                                // 0: before the first step
  std::map<std::pair<std::size_t, std::vector<int>>, std::size_t> statesAfter_;  // by the one before, and members
  std::mt19937_64 random_;
  int round_ = -1;
  int lastRounds_ = 0;  // without faults, at the end
  Time began_{0};
  std::vector<int> members_;  // of the round, by rank
  std::vector<std::string> handles_;
  int steps_ = 0;
  bool aborts_ = false;
  bool isDisturbed_ = false;                // something fatal was done in this round, or lasts
  bool hasFailed_ = false;                  // the round, on some member
  std::vector<std::pair<int, Time>> cuts_;  // machines, and until when
  Time fatalEnds_{0};
  std::vector<std::vector<std::optional<std::uint64_t>>> answers_;  // of the round
  std::vector<std::size_t> went_;                                   // back to these states
  int stepsBegun_ = 0;                                              // of the round, on some member
  std::size_t beginning_ = 0;                                       // that its members have when they take the first
  std::set<int> before_;                                            // who was in the round before
  // Those of these that are in this round, if all of them had met then.
  std::set<int> comrades_;
  std::optional<bool> havePart_;  // these, in what this round has agreed on
  std::size_t commonSteps_ = 0;   // that all of them have
  Verdict verdict_;
  bool isOver_ = false;
};

Verdict playRounds(const Script& script, const std::vector<Place>& places);

}  // namespace fairring::testing
