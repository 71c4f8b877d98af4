#include "backend/shown_errors.h"

namespace fairring {

ShownErrors& ShownErrors::all() {
  static ShownErrors errors;
  return errors;
}

void ShownErrors::add(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!errors_.insert_or_assign(error.text(), error).second) return;
  texts_.push_back(error.text());
  if (texts_.size() <= kKept) return;
  errors_.erase(texts_.front());
  texts_.pop_front();
}

std::optional<Error> ShownErrors::find(const std::string& text) const {
  const std::lock_guard lock(mutex_);
  const auto found = errors_.find(text);
  return found == errors_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace fairring
