// The errors that this process's programs were shown, by their text, which is all of an error that torch hands on to
// Python. `fairring.errors` finds the kind and the ranks here again. One object per process; any thread.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/error.h"

namespace fairring {

class ShownErrors {
 public:
  static constexpr std::size_t kKept = 4096;  // the last ones: each call that was under way has a text of its own

  static ShownErrors& all();

  void add(const Error& error);
  std::optional<Error> find(const std::string& text) const;

 private:
  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<std::string, Error> errors_;
  std::deque<std::string> texts_;  // in order
};

}  // namespace fairring
