#include "backend/hooks.h"

#include <atomic>
#include <utility>

#include "backend/completion.h"

namespace fairring {

void Hooks::onAbort(std::int64_t id, AbortHook hook) {
  const std::lock_guard lock(mutex_);
  abort_[id] = std::move(hook);
}

void Hooks::onCompletion(std::int64_t id, CompletionHook hook) {
  const std::lock_guard lock(mutex_);
  completion_[id] = std::move(hook);
}

// The hook is destroyed outside the mutex: it may be Python's.
void Hooks::forgetAbort(std::int64_t id) {
  decltype(abort_)::node_type gone;
  const std::lock_guard lock(mutex_);
  gone = abort_.extract(id);
}

// On return the hook is not running any more, as a caller that unregisters it expects.
void Hooks::forgetCompletion(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  completion_.erase(id);
}

void Hooks::aborting() const {
  decltype(abort_) hooks;
  {
    const std::lock_guard lock(mutex_);
    hooks = abort_;
  }
  for (const auto& [id, hook] : hooks) orLogged("an abort hook of a group", hook);
}

void Hooks::completed(std::uint64_t key) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, hook] : completion_) {
    CompletionHookArgs args;
    args.completionKey = key;
    orLogged("a completion hook of a group", [&] { hook(args); });
  }
}

std::uint64_t Hooks::nextKey() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace fairring
