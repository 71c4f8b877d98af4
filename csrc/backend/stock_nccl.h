// The stock NCCL of one group, for its calls on CUDA tensors: what torch makes for "nccl". It is made by the first of
// these calls, broken off when the group fails, and ended with it. A group without such calls has none. One whose
// members change has another one then.
//
// From torch 2.15 on "nccl" has one communicator, on one device, which all ranks make together. A program that asked
// torch for it would have made it at the group's making; here it is made late, and a rank that takes no part in a
// message may never come. So messages between two ranks, and calls on a rank's other devices, have torch's older NCCL
// beside it, which has a communicator for each pair of ranks and for each device.
// Any thread. get() and end() may wait, without Python's lock.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "backend/abortable_store.h"

namespace fairring {

constexpr const char* kEndOfNccl = "the end of a group's NCCL";  // in the log

class StockNccl {
 public:
  using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using Device = std::optional<c10::Device>;
  struct Met {  // where the ranks of the group have met
    std::int64_t generation;
    StorePtr store;
  };
  enum class Part : std::uint8_t { Nccl, Older };
  // Makes it in that generation, on that store; on that device, or the current one, if it has one for the group. Null:
  // "nccl" is the older one here. Takes Python's lock itself.
  using Make = std::function<BackendPtr(std::int64_t generation, StorePtr store, Part part, Device device)>;
  using Meet = std::function<Met()>;  // waits for the ranks
  using Prepare = std::function<void(c10d::Backend&)>;

  explicit StockNccl(Make make);  // null: of a group without members, or without NCCL

  struct Use {
    Device device = std::nullopt;  // none: the call is not on any
    bool isMessage = false;
    bool isOnDevice = true;  // false: NCCL is only to be made there, and serves the call wherever it is
  };
  // `prepare` is called once for each backend that is made. Throws DistBackendError once the group has ended or failed.
  BackendPtr get(const Use& use, const Meet& meet, const Prepare& prepare);
  std::vector<BackendPtr> made() const;  // those that calls have needed
  // To be held while a call is begun: nccl2 may not be aborted while a thread is in it.
  using Beginning = std::shared_lock<std::shared_timed_mutex>;
  Beginning beginning() const { return Beginning(beginning_); }
  bool serves(const c10d::Backend& backend) const;  // it is this one's, neither broken off nor ended
  // The group has failed: ends the calls under way, and those to come. As end(), it throws the first exception of
  // NCCL's once it has come to all.
  void breakOff();
  void end();

 private:
  bool isElsewhere(const Use& use) const;
  BackendPtr make(Part part, const Device& device, const Meet& meet, const Prepare& prepare);

  std::stop_source broken_;

  mutable std::shared_timed_mutex beginning_;
  // Held while one is aborted, which waits for its kernels: no other thread may abort nccl2 then, nor shut it down.
  std::mutex aborting_;

  std::mutex making_;     // held while one is made; guards the next; never taken by breakOff()
  bool hasOlder_ = true;  // beside "nccl"; false once it is known that there is none

  mutable std::mutex mutex_;          // guards all below; never held while anything waits
  std::shared_ptr<const Make> make_;  // null once ended: it holds a Python object, which must not outlive Python
  BackendPtr nccl_;
  BackendPtr older_;
};

}  // namespace fairring
