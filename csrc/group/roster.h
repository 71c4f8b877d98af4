// The members of a group that need no store to meet, for each has been given the handles of all: c10d's reconfigure. A
// handle is what a rank says of itself to whoever may become its peer: the facts that it would publish in the store,
// its rank in the group that it is in, and a token. The token is drawn with the rank's backend and is its name; those
// of all members are what the group's secret follows from, with the uuid that the members agree on. So handles are to
// be kept from strangers as the store is, unless FAIRRING_SECRET_FILE gives a secret besides, and a group has a secret
// and an id that no other has. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"
#include "group/rank_facts.h"
#include "transport/challenge.h"

namespace fairring {

std::string newToken();  // 64 hexadecimal digits
bool isToken(const std::string& text);

struct Handle {
  static constexpr int kNewcomer = 1 << 30;  // in no group yet

  std::string token;  // newToken()
  int rank = kNewcomer;
  RankFacts facts;

  static void fields(auto& row, auto& handle) {
    row("fairring handle 2", handle.token, handle.rank, handle.facts);
    row.require(isToken(handle.token) && handle.rank >= 0);
  }
};

// Throws Failure(Usage) on text that is not a handle of this version.
Handle readHandle(const std::string& text);

struct Roster {
  std::vector<RankFacts> facts;  // facts[r] is rank r's
  int rank = 0;                  // this rank
  Secret secret{};
  Secret ancestor{};  // where a group is shrunk: that of the first one, from which it follows
};

// Handles that have no order, in the one that all members choose: by the ranks that they had, newcomers last.
std::vector<std::string> inOrder(std::vector<std::string> handles);

// handles[r] becomes rank r. `token`: this rank's own; `base`: the secret that all have besides, or zeros. Throws
// Failure(Usage) where this rank is not among them, or one is there twice.
Roster rosterOf(const std::vector<std::string>& handles, const std::string& token, std::int64_t uuid,
                const Secret& base);

}  // namespace fairring
