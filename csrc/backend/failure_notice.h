// The first error of a group on its way out: once, on a completion thread, to the owner of the membership and to the
// store, where ranks look that still wait for others. If the error ends the process, it does so once they can read it.
// The other direction is here, too: looking in the store for the rank that failed first.
//
// Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backend/completion.h"
#include "base/error.h"
#include "base/patient_thread.h"
#include "group/bootstrap.h"

namespace fairring {

class FailureNotice {
 public:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;
  // On a thread of these; may outlive the notice. endsProcess: the process is about to end, and calls on CUDA tensors
  // stay where they are.
  using OnFailed = std::function<void(Completion&, bool endsProcess)>;

  static constexpr std::chrono::seconds kPatienceWithStore{5};

  struct EndsProcess {
    bool always = false;
    bool withDevice = false;  // if the group has made a call on CUDA tensors
  };

  FailureNotice(StorePtr store, EndsProcess ends, OnFailed onFailed);  // the store may be null
  FailureNotice(const FailureNotice&) = delete;
  FailureNotice& operator=(const FailureNotice&) = delete;
  ~FailureNotice() { close(); }
  // From now on nothing is found. Waits kPatienceWithStore for a look that is under way.
  void close();

  // A connection to the store, made while all is well: to make one to a store that has gone takes the store's timeout.
  void keep(StorePtr connection);
  // A call is about to be made on a device, by NCCL or by the engine: later work reads its result, and no host waits.
  void noteCallOnDevice() { hasCallOnDevice_ = true; }
  bool endsProcess(const Error& error) const;
  void tell(const Error& error, const std::string& key, Completion& completion);
  // `found` gets the error that the store has under the key, or an empty one. It is not called after close().
  void lookForAnothers(const std::string& key, const BootstrapOptions& options,
                       std::function<void(const Error&)> found);

 private:
  struct Asking {
    std::mutex mutex;  // guards the next, and asks_; held while an answer of the store's is posted to the loop
    bool isOpen = true;
  };

  const StorePtr store_;
  const EndsProcess ends_;
  const OnFailed onFailed_;
  const std::shared_ptr<Asking> asking_ = std::make_shared<Asking>();
  std::unique_ptr<PatientThread> asks_;
  std::atomic<bool> hasCallOnDevice_ = false;
  std::mutex mutex_;  // guards all below
  StorePtr connection_;
  bool isTold_ = false;
};

}  // namespace fairring
