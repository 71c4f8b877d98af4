// A text that several owners share, made once: a copy costs a counter. Immutable, so any thread may read it.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace fairring {

class Text {
 public:
  Text() = default;
  // NOLINTBEGIN(google-explicit-constructor): a text converts from what it is made of
  Text(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {}
  Text(const char* text) : Text(std::string(text)) {}
  operator std::string_view() const { return text_ ? std::string_view(*text_) : std::string_view(); }
  // NOLINTEND(google-explicit-constructor)
  std::string str() const { return std::string(std::string_view(*this)); }

  friend bool operator==(const Text& text, std::string_view other) { return std::string_view(text) == other; }
  friend std::ostream& operator<<(std::ostream& out, const Text& text) { return out << std::string_view(text); }

 private:
  std::shared_ptr<const std::string> text_;  // null: empty
};

}  // namespace fairring
