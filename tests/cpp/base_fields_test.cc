// The text form of values that ranks exchange: written values are read back, and nothing else is accepted.
#include "base/fields.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace fairring {
namespace {

enum class Colour : std::uint8_t { Red, Green };

struct Inner {
  std::int32_t number = 0;
  std::string text;

  static void fields(auto& row, auto& inner) { row(inner.number, inner.text); }
  bool operator==(const Inner&) const = default;
};

struct Outer {
  bool flag = false;
  Colour colour = Colour::Red;
  std::uint64_t large = 0;
  std::vector<Inner> inner;
  std::string last;

  static void fields(auto& row, auto& outer) {
    row("outer 1", outer.flag, outer.colour, outer.large, outer.inner, outer.last);
    row.require(outer.colour <= Colour::Green);
  }
  bool operator==(const Outer&) const = default;
};

const Outer kOuter{true,
                   Colour::Green,
                   std::numeric_limits<std::uint64_t>::max(),
                   {{-7, ""}, {7, std::string("a,b:\n\0c", 7)}},
                   "3:end,"};

TEST(Fields, AValueComesBackFromItsText) {
  EXPECT_EQ(fromText<Outer>(toText(kOuter)), kOuter);
  EXPECT_EQ(fromText<Outer>(toText(Outer())), Outer());
  EXPECT_EQ(fromText<std::int64_t>(toText(std::numeric_limits<std::int64_t>::min())),
            std::numeric_limits<std::int64_t>::min());
}

TEST(Fields, TheTextIsARowOfNetstrings) {
  EXPECT_EQ(toText(Inner{-12, "hello"}), "3:-12,5:hello,");
  EXPECT_EQ(toText(std::vector<std::string>{"a", ""}), "1:2,1:a,0:,");
}

TEST(Fields, NothingIsReadFromAPartOfAText) {
  const std::string text = toText(kOuter);
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(fromText<Outer>(text.substr(0, length))) << length;
  }
  EXPECT_FALSE(fromText<Outer>(text + "0:,"));
}

// So a change of any byte is noticed, or is another value.
TEST(Fields, NoTwoTextsAreTheSameValue) {
  const std::string text = toText(kOuter);
  for (std::size_t place = 0; place < text.size(); ++place) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[place] = static_cast<char>(byte);
      const auto value = fromText<Outer>(changed);
      if (value) {
        EXPECT_EQ(toText(*value), changed);
      }
    }
  }
}

TEST(Fields, ANumberMustFitAndBeWrittenInOneWay) {
  for (const std::string text : {"1:x,", "0:,", "2: 1,", "2:01,", "2:+1,", "2:-0,", "01:1,", "1:1", "1;1,", ":1,",
                                 "11:99999999999,", "99999999999999999999:1,", "18446744073709551615:1,"}) {
    EXPECT_FALSE(fromText<std::int32_t>(text)) << text;
  }
  EXPECT_FALSE(fromText<std::uint64_t>("2:-1,"));
  EXPECT_FALSE(fromText<bool>("1:2,"));
  EXPECT_EQ(fromText<std::int32_t>("11:-2147483648,"), std::numeric_limits<std::int32_t>::min());
  EXPECT_FALSE(fromText<std::int32_t>("11:-2147483649,"));
}

TEST(Fields, AVectorThatSaysItIsLongerThanItsTextTakesNoMemory) {
  EXPECT_FALSE(fromText<std::vector<Inner>>("19:9000000000000000000,1:1,0:,"));
}

TEST(Fields, AnotherFormOrAValueThatMustNotBeIsRefused) {
  std::string text = toText(kOuter);
  EXPECT_FALSE(fromText<Outer>(text.replace(text.find("outer 1"), 7, "outer 2")));
  Outer wrong = kOuter;
  wrong.colour = static_cast<Colour>(2);
  EXPECT_FALSE(fromText<Outer>(toText(wrong)));
}

}  // namespace
}  // namespace fairring
