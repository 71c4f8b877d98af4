// An error as a value: its kind, a text that names the rank, the problem, the numbers and the remedy, and the ranks
// that programs should look at. There are two ways to fail. A caller's thread throws a Failure; the loop passes on an
// Error, and the first one of a group stays. The two meet in the backend's Work. Immutable, so any thread may read it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace fairring {

enum class ErrorKind : std::uint8_t {
  Configuration,  // a setting, or ranks whose settings differ
  Usage,          // a call that can't be carried out as it was made
  Mismatch,       // ranks made different calls
  PeerDied,       // a rank's process ended, or its connection broke
  PeerLeft,       // a rank destroyed its group while others still needed it
  Timeout,
  Connection,  // a connection could not be made, or its bytes were not ours
  Aborted,     // this rank gave up on its own accord
  Refused,     // a rank could not take part in this call; only this call ends with it
  System,      // the operating system refused something
};

const char* name(ErrorKind kind);

class Error {
 public:
  Error() = default;  // no error
  Error(ErrorKind kind, std::string text, std::vector<int> ranks = {});

  explicit operator bool() const { return what_ != nullptr; }
  ErrorKind kind() const { return what_->kind; }
  const std::string& text() const;
  // The group's ranks that died, left, are late or refused; both sides of a difference or a broken connection.
  const std::vector<int>& ranks() const;
  Error about(std::vector<int> ranks) const { return {kind(), text(), std::move(ranks)}; }

 private:
  struct What {
    ErrorKind kind;
    std::string text;
    std::vector<int> ranks;
  };
  std::shared_ptr<const What> what_;
};

class Failure : public std::runtime_error {
 public:
  explicit Failure(Error error) : std::runtime_error(error.text()), error_(std::move(error)) {}
  const Error& error() const { return error_; }

 private:
  Error error_;
};

// Writes it as a stream would. Texts and integers go without a stream, which takes longer to make than they to write.
template <class Part>
void appendTo(std::string& text, const Part& part) {
  if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
    text += std::string_view(part);
  } else if constexpr (std::is_integral_v<Part> && sizeof(Part) > 1) {
    text += std::to_string(part);
  } else {
    std::ostringstream out;
    out << part;
    text += out.str();
  }
}

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string text;
  (appendTo(text, parts), ...);
  return text;
}

// What `show` makes of each item, as appendTo() writes it.
template <class Items, class Show = std::identity>
std::string joined(const Items& items, std::string_view between, const Show& show = {}) {
  std::string text;
  std::string_view before;
  for (const auto& item : items) {
    text += std::exchange(before, between);
    appendTo(text, std::invoke(show, item));
  }
  return text;
}

template <class... Parts>
Error makeError(ErrorKind kind, const Parts&... parts) {
  return {kind, concat(parts...)};
}

// On a caller's thread: throws if the condition does not hold. The parts give the operands' values.
template <class... Parts>
void check(bool holds, ErrorKind kind, const Parts&... parts) {
  if (!holds) throw Failure(makeError(kind, parts...));
}

// The text of errno for a call that failed, as "bind: Address already in use".
Error systemError(const char* call);

}  // namespace fairring
