// Handles as text, the order of members, and the inputs of their secret.
#include "group/roster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace fairring {
namespace {

Handle handleOf(int rank, int port) {
  Handle handle{.token = newToken(), .rank = rank, .facts = {}};
  handle.facts.place = {"machine", "site"};
  handle.facts.hostname = "host";
  handle.facts.addresses = {"10.0.0.1", "10.1.0.1"};
  handle.facts.port = port;
  handle.facts.settings = "slices of 25 MiB";
  return handle;
}

ErrorKind kindOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure.error().kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::System;
}

TEST(Roster, AHandleComesBackFromItsText) {
  const Handle handle = handleOf(3, 4711);
  const Handle back = readHandle(toText(handle));
  EXPECT_EQ(back.token, handle.token);
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(toText(back.facts), toText(handle.facts));
  EXPECT_EQ(toText(back), toText(handle));
}

TEST(Roster, WhatIsNoHandleIsRefused) {
  const Handle handle = handleOf(3, 4711);
  Handle negative = handle;
  negative.rank = -1;
  Handle nameless = handle;
  nameless.token.back() = '~';
  Handle elsewhere = handle;
  elsewhere.facts.port = 0;
  for (const std::string& text : {std::string(), std::string("x"), toText(handle).substr(1), toText(handle.facts),
                                  toText(negative), toText(nameless), toText(elsewhere)}) {
    EXPECT_EQ(kindOf([&] { readHandle(text); }), ErrorKind::Usage) << text;
  }
}

TEST(Roster, HandlesWithoutAnOrderKeepThatOfTheirRanksAndNewcomersComeLast) {
  const std::vector<std::string> sorted{toText(handleOf(0, 1)), toText(handleOf(2, 1)), toText(handleOf(5, 1)),
                                        toText(handleOf(Handle::kNewcomer, 1))};
  std::vector<std::string> handles = sorted;
  std::ranges::sort(handles);
  do {
    EXPECT_EQ(inOrder(handles), sorted);
  } while (std::ranges::next_permutation(handles).found);
}

TEST(Roster, AllMembersHaveTheSameSecretAndEachItsOwnRank) {
  const std::vector<Handle> members{handleOf(0, 1), handleOf(1, 2), handleOf(2, 3)};
  std::vector<std::string> handles;
  for (const Handle& one : members) handles.push_back(toText(one));
  const Roster first = rosterOf(handles, members[0].token, 7, {});
  for (int rank = 0; rank < 3; ++rank) {
    const Roster roster = rosterOf(handles, members[static_cast<std::size_t>(rank)].token, 7, {});
    EXPECT_EQ(roster.rank, rank);
    EXPECT_EQ(roster.secret, first.secret);
    EXPECT_EQ(roster.facts.at(2).port, 3);
  }
}

TEST(Roster, AnotherUuidMemberOrderOrBaseGivesAnotherSecret) {
  const std::vector<Handle> members{handleOf(0, 1), handleOf(1, 2), handleOf(2, 3)};
  const std::string a = toText(members[0]);
  const std::string b = toText(members[1]);
  const std::string c = toText(members[2]);
  const std::string& token = members[0].token;
  std::vector<Secret> secrets{rosterOf({a, b}, token, 7, {}).secret,
                              rosterOf({a, b}, token, 8, {}).secret,
                              rosterOf({b, a}, token, 7, {}).secret,
                              rosterOf({a, b, c}, token, 7, {}).secret,
                              rosterOf({a, c}, token, 7, {}).secret,
                              rosterOf({a}, token, 7, {}).secret,
                              rosterOf({a, b}, token, 7, randomSecret()).secret};
  std::ranges::sort(secrets);
  EXPECT_TRUE(std::ranges::adjacent_find(secrets) == secrets.end());
}

TEST(Roster, WhoIsNotThereOrThereTwiceIsRefused) {
  const Handle own = handleOf(0, 1);
  const std::string other = toText(handleOf(1, 2));
  EXPECT_EQ(kindOf([&] { rosterOf({other}, own.token, 7, {}); }), ErrorKind::Usage);
  EXPECT_EQ(kindOf([&] { rosterOf({}, own.token, 7, {}); }), ErrorKind::Usage);
  EXPECT_EQ(kindOf([&] { rosterOf({toText(own), other, other}, own.token, 7, {}); }), ErrorKind::Usage);
}

}  // namespace
}  // namespace fairring
