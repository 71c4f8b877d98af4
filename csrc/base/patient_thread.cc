#include "base/patient_thread.h"

#include <utility>

namespace fairring {

PatientThread::PatientThread(std::function<void()> work) {
  std::promise<void> over;
  over_ = over.get_future();
  thread_ = std::thread([work = std::move(work), over = std::move(over)]() mutable {
    work();
    // What it owns is dropped while it is waited for.
    work = nullptr;
    over.set_value();
  });
}

bool PatientThread::endBy(Clock::time_point until) {
  if (!thread_.joinable()) return true;
  const bool isOver = over_.wait_until(until) == std::future_status::ready;
  isOver ? thread_.join() : thread_.detach();
  return isOver;
}

}  // namespace fairring
