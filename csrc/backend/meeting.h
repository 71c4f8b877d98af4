// The background meeting of one group's ranks, from the group's first moment on. Whether a rank makes a call soon or
// late, it has read the addresses of all others while they listen. So a rank that dies before its first call is missed
// at once, and a rank may leave as soon as all have met: it waits for that, for kPatienceWithRanks at most.
//
// Any thread. end() may wait, without Python's lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backend/abortable_store.h"
#include "base/patient_thread.h"

namespace fairring {

class Meeting : public std::enable_shared_from_this<Meeting> {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  using Meet = std::function<std::string()>;  // waits for the ranks; returns the key that is there once all have met
  static constexpr std::chrono::seconds kPatienceWithRanks{10};  // that have not made the group yet
  static constexpr std::chrono::seconds kPatience{5};            // with the store, once the meeting is broken off

  explicit Meeting(StorePtr store);

  void begin(Meet meet, std::function<void()> giveUp);  // giveUp: makes `meet` end soon, by a throw
  void breakOff();                                      // the group has failed: no rank is waited for
  void end();

 private:
  void run(const Meet& meet);
  StorePtr storeOfOwn();

  std::stop_source broken_;

  std::mutex mutex_;  // guards all below; never held while anything waits
  std::condition_variable changed_;
  StorePtr store_;  // null once ended: torch may keep the group longer than its store
  bool isUnderWay_ = false;
  std::unique_ptr<PatientThread> thread_;
  std::function<void()> giveUp_;
};

}  // namespace fairring
