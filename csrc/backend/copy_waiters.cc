#include "backend/copy_waiters.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/completion.h"
#include "backend/cuda_device.h"
#include "base/patient_thread.h"

namespace fairring {
namespace {

constexpr std::chrono::seconds kPatienceWithDevices{5};

// Any call on a device may throw an error of an earlier one.
template <class Awaited>
Error waitFor(const Awaited& awaited, const c10::Device& device) {
  const auto failed = [&device](const char* why) {
    return makeError(ErrorKind::System, "the inputs of a call can't be copied from ", device.str(), ": ", why);
  };
  try {
    const c10::DeviceGuard onIt(device);
    const std::unique_ptr<CaptureUnheeded> unheeded = captureUnheeded(device);
    awaited.synchronize();
    return {};
  } catch (const c10::Error& error) {
    return failed(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return failed(error.what());
  }
}

}  // namespace

struct CopyWaiters::Copies {
  c10::Event made;
  std::vector<at::Tensor> tensors;
  std::shared_ptr<Arrival> arrival;
};

class CopyWaiters::Shared : public std::enable_shared_from_this<Shared> {
 public:
  void add(const c10::Stream& stream, Copies copies) {
    const std::lock_guard lock(mutex_);
    const auto known = streams_.find(stream);
    if (known != streams_.end()) return known->second.push_back(std::move(copies));
    if (idle_ <= ready_.size()) startThread();
    ready_.push_back(stream);
    try {
      streams_[stream].push_back(std::move(copies));
    } catch (const std::exception&) {
      ready_.pop_back();
      streams_.erase(stream);
      throw;
    }
    changed_.notify_one();
  }

  void stop() {
    std::list<PatientThread> threads;
    {
      const std::lock_guard lock(mutex_);
      isStopped_ = true;
      threads.swap(threads_);
    }
    changed_.notify_all();
    const auto until = PatientThread::Clock::now() + kPatienceWithDevices;
    for (PatientThread& thread : threads) thread.endBy(until);
  }

 private:
  void startThread() {
    threads_.emplace_back([self = shared_from_this()] { self->serve(); });
    ++idle_;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return isStopped_ || !ready_.empty(); });
      if (isStopped_) return;
      const c10::Stream stream = ready_.front();
      ready_.pop_front();
      --idle_;
      serve(stream, lock);
      ++idle_;
    }
  }

  // Arrivals are told with the lock held: so whoever has stopped this is told nothing any more.
  void serve(const c10::Stream& stream, std::unique_lock<std::mutex>& lock) {
    for (std::deque<Copies>& those = streams_[stream]; !those.empty() && !isStopped_;) {
      std::optional<Copies> copies = std::move(those.front());
      those.pop_front();
      lock.unlock();
      const Error error = waitFor(copies->made, stream.device());
      const std::shared_ptr<Arrival> arrival = copies->arrival;
      // Dropping tensors may take Python's lock.
      copies.reset();
      lock.lock();
      if (!isStopped_) orLogged("telling a call of its inputs", [&] { arrival->come(error); });
    }
    streams_.erase(stream);
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::unordered_map<c10::Stream, std::deque<Copies>> streams_;  // those that a thread serves, or will
  std::deque<c10::Stream> ready_;                                // those that none serves yet
  std::list<PatientThread> threads_;
  std::size_t idle_ = 0;  // threads
  bool isStopped_ = false;
};

CopyWaiters::CopyWaiters() : shared_(std::make_shared<Shared>()) {}

CopyWaiters::~CopyWaiters() { shared_->stop(); }

Error CopyWaiters::waitHere(const c10::Stream& stream) { return waitFor(stream, stream.device()); }

void CopyWaiters::wait(const c10::Stream& stream, std::vector<at::Tensor> tensors,
                       const std::shared_ptr<Arrival>& arrival) {
  try {
    c10::Event made(stream.device_type());
    made.record(stream);
    shared_->add(stream, {std::move(made), std::move(tensors), arrival});
  } catch (const std::exception&) {
    arrival->come(waitHere(stream));
  }
}

}  // namespace fairring
