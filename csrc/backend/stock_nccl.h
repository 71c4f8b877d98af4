// The stock NCCL of one group, for its calls on CUDA tensors: made by the first of them, broken off when the group
// fails, and ended with it. A group without such calls has none.
// Any thread. get() and end() may wait, without Python's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backend/abortable_store.h"

namespace fairring {

class StockNccl {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  // Makes it on that store, in the generation of the group in which its ranks have met. Takes the GIL itself.
  using Make = std::function<BackendPtr(std::int64_t generation, StorePtr store)>;
  using Meet = std::function<std::int64_t()>;  // waits for the ranks and returns the generation

  StockNccl(StorePtr store, Make make);

  // `prepare` is called once, with the backend that was made. Throws DistBackendError once the group has ended.
  BackendPtr get(const Meet& meet, const std::function<void(c10d::Backend&)>& prepare);
  BackendPtr made() const;  // null if no call has needed it
  bool hasEnded() const;
  void breakOff();  // the group has failed: ends the calls under way, and later ones
  void end();

 private:
  const std::shared_ptr<Alarm> broken_ = std::make_shared<Alarm>();

  std::mutex making_;                 // held while it is made; never taken by breakOff()
  mutable std::mutex mutex_;          // guards all below; never held while anything waits
  std::shared_ptr<const Make> make_;  // null once ended: it holds a Python object, which must not outlive Python
  StorePtr store_;                    // null once ended: torch may keep the group longer than its store
  BackendPtr made_;
};

}  // namespace fairring
