// The memory of a group's calls on CUDA tensors that may be under way. NCCL runs all calls of a group in one stream, so
// two calls on the same memory keep their order there, even if nobody waits between them. Here NCCL's calls have that
// stream, and the slices of Fairring's calls have several. So a call that shares memory with an earlier one begins
// behind it, unless somebody has waited for the earlier one. NCCL's calls among themselves need no help.
// Callers only, any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/delegated_call.h"
#include "backend/enqueued_call.h"

namespace fairring {

class MemoryInFlight {
 public:
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
  };
  using Ranges = std::vector<Range>;
  using Tensors = std::vector<at::Tensor>;
  enum class Whose : std::uint8_t { Fairrings, All };

  // Forgets all calls. False: all are NCCL's from now on, and none is remembered; so it begins.
  void use(bool isUsed);
  // All tensors and lists of tensors among these. None if no memory is remembered.
  template <class... Parts>
  Tensors tensors(const Parts&... parts) const {
    Tensors tensors;
    if (isUsed_) (append(tensors, parts), ...);
    return tensors;
  }
  static Ranges of(const Tensors& tensors);  // their memory, on CUDA devices

  void add(Ranges ranges, EnqueuedCall::Ref call);
  void add(Ranges ranges, std::shared_ptr<DelegatedCall> call);
  bool isEmpty();  // no call that is remembered may be under way
  bool meets(const Ranges& ranges, Whose whose) const;
  void holdBack(const c10::Stream& stream, const Ranges& ranges, Whose whose) const;  // behind those that these meet

 private:
  struct Entry {
    Ranges ranges;
    EnqueuedCall::Ref ours;  // null: the other one
    std::shared_ptr<DelegatedCall> nccls;
    bool isOver() const;
    bool meets(const Ranges& others, Whose whose) const;
  };

  static void append(Tensors& tensors, const at::Tensor& tensor) { tensors.push_back(tensor); }
  template <class Other>
  static void append(Tensors&, const Other&) {}
  template <class Part>
  static void append(Tensors& tensors, const std::vector<Part>& parts) {
    for (const Part& part : parts) append(tensors, part);
  }
  void add(Entry entry);
  std::vector<Entry> takeThoseOver();

  std::atomic<bool> isUsed_ = false;
  mutable std::mutex mutex_;   // guards the next; no tensor is dropped while it is held
  std::deque<Entry> entries_;  // in the order of calls
};

}  // namespace fairring
