// The one text form of values that ranks exchange outside of payload: a row of fields, each a netstring ("5:hello,").
// A field may hold any bytes, so there are no separators to escape, and no two values have the same text.
//
// A type lists its fields once, for both directions:
//
//   struct Seat {
//     std::int64_t generation = 0;
//     std::string name;
//     static void fields(auto& row, auto& seat) { row("seat 1", seat.generation, seat.name); }
//   };
//
// A literal must stand in the text as it does in the list: it names the form and its version. A list may also require
// conditions on the values: row.require(seat.generation >= 0). Fields are texts, integers, enumerations, types with a
// list of their own, and vectors of these.
//
// There is one way to fail: fromText() returns nothing if the text is not exactly the one that toText() would make of
// the value. The caller decides what to do then; valueOf() throws.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace fairring {

// The beginning of a text that can't be read, for an error.
inline std::string_view shownOf(std::string_view text) { return text.substr(0, 80); }

class FieldWriter {
 public:
  template <class... Fields>
  void operator()(const Fields&... fields) {
    (write(fields), ...);
  }
  void require(bool) {}
  std::string take() { return std::move(text_); }

 private:
  void write(std::string_view field);
  template <std::integral Number>
  void write(Number number) {
    write(std::string_view(std::to_string(number)));
  }
  template <class Enumeration>
    requires std::is_enum_v<Enumeration>
  void write(Enumeration value) {
    write(static_cast<std::underlying_type_t<Enumeration>>(value));
  }
  template <class Element>
  void write(const std::vector<Element>& elements) {
    write(elements.size());
    for (const Element& element : elements) write(element);
  }
  template <class Listed>
    requires requires(FieldWriter& row, const Listed& value) { Listed::fields(row, value); }
  void write(const Listed& value) {
    Listed::fields(*this, value);
  }

  std::string text_;
};

// Once a field is missing or wrong, all later fields are left as they are.
class FieldReader {
 public:
  explicit FieldReader(std::string_view text) : rest_(text) {}

  template <class... Fields>
  void operator()(Fields&... fields) {
    (read(fields), ...);
  }
  void require(bool holds) { isWrong_ = isWrong_ || !holds; }
  bool isComplete() const { return !isWrong_ && rest_.empty(); }

 private:
  std::string_view next();  // the next field
  template <std::size_t Size>
  void read(const char (&literal)[Size]) {
    require(next() == literal);
  }
  void read(std::string& field) { field = next(); }
  template <std::integral Number>
  void read(Number& number) {
    const std::string_view field = next();
    std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t> value{};
    const auto [end, code] = std::from_chars(field.data(), field.data() + field.size(), value);
    require(code == std::errc() && std::to_string(value) == field);
    require(value >= static_cast<decltype(value)>(std::numeric_limits<Number>::min()) &&
            value <= static_cast<decltype(value)>(std::numeric_limits<Number>::max()));
    if (!isWrong_) number = static_cast<Number>(value);
  }
  // The list states the allowed values by require().
  template <class Enumeration>
    requires std::is_enum_v<Enumeration>
  void read(Enumeration& value) {
    std::underlying_type_t<Enumeration> number{};
    read(number);
    value = static_cast<Enumeration>(number);
  }
  template <class Element>
  void read(std::vector<Element>& elements) {
    std::size_t size = 0;
    read(size);
    for (std::size_t i = 0; i < size && !isWrong_; ++i) read(elements.emplace_back());
  }
  template <class Listed>
    requires requires(FieldReader& row, Listed& value) { Listed::fields(row, value); }
  void read(Listed& value) {
    Listed::fields(*this, value);
  }

  std::string_view rest_;
  bool isWrong_ = false;
};

template <class Value>
std::string toText(const Value& value) {
  FieldWriter row;
  row(value);
  return row.take();
}

template <class Value>
std::optional<Value> fromText(std::string_view text) {
  FieldReader row(text);
  std::optional<Value> value(std::in_place);
  row(*value);
  return row.isComplete() ? std::move(value) : std::nullopt;
}

// Like fromText(), but throws a Failure of that kind, with a text made from `why`, if there is no such value.
template <class Value, class... Why>
Value valueOf(std::string_view text, ErrorKind kind, const Why&... why) {
  std::optional<Value> value = fromText<Value>(text);
  if (!value) throw Failure(makeError(kind, why...));
  return *std::move(value);
}

}  // namespace fairring
