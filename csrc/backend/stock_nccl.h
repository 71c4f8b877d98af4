// The stock NCCL of one group, for its calls on CUDA tensors: made by the first of them, broken off when the group
// fails, and ended with it. A group without such calls has none. One whose members change has another one then.
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
  struct Met {  // where the ranks of the group have met
    std::int64_t generation;
    StorePtr store;
  };
  // Makes it in that generation, on that store. Takes Python's lock itself.
  using Make = std::function<BackendPtr(std::int64_t generation, StorePtr store)>;
  using Meet = std::function<Met()>;  // waits for the ranks

  explicit StockNccl(Make make);  // null: of a group without members, or without NCCL

  // `prepare` is called once, with the backend that was made. Throws DistBackendError once the group has ended.
  BackendPtr get(const Meet& meet, const std::function<void(c10d::Backend&)>& prepare);
  BackendPtr made() const;  // null where no call has needed it
  void breakOff();          // the group has failed: ends the calls under way, and those to come
  void end();

 private:
  const std::shared_ptr<Alarm> broken_ = std::make_shared<Alarm>();

  std::mutex making_;                 // held while it is made; never taken by breakOff()
  mutable std::mutex mutex_;          // guards all below; never held while anything waits
  std::shared_ptr<const Make> make_;  // null once ended: it holds a Python object, which must not outlive Python
  BackendPtr made_;
};

}  // namespace fairring
