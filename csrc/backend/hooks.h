// The listeners that a group tells of calls that ended well and of its own failure. PyTorch's flight recorder is one
// from torch 2.15 on; before, nothing registers. Shared by the backend and its Works.
//
// Any thread. Completion hooks are short and never take the GIL (c10d's contract), so they run where a call ends, the
// loop included. Abort hooks may be Python's: they run where a group's failure is handled, which may block.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace fairring {

#ifdef FAIRRING_TORCH_2_15
using c10d::AbortHook;
using c10d::CompletionHook;
using c10d::CompletionHookArgs;
#else
struct CompletionHookArgs {
  std::uint64_t completionKey = 0;
};
using AbortHook = std::function<void()>;
using CompletionHook = std::function<void(const CompletionHookArgs&)>;
#endif

class Hooks {
 public:
  void onAbort(std::int64_t id, AbortHook hook);
  void onCompletion(std::int64_t id, CompletionHook hook);
  void forgetAbort(std::int64_t id);
  void forgetCompletion(std::int64_t id);

  // Both call the hooks in the order of their ids, and log what these throw.
  void aborting() const;
  void completed(std::uint64_t key) const;  // a call that ended well

  static std::uint64_t nextKey();  // unique in the process, for ever

 private:
  mutable std::mutex mutex_;  // guards the two; all hooks but completion hooks run outside it
  std::map<std::int64_t, AbortHook> abort_;
  std::map<std::int64_t, CompletionHook> completion_;
};

}  // namespace fairring
