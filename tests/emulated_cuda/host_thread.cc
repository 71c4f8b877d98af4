#include "host_thread.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <string>

#include "device.h"
#include "report.h"
#include "settings.h"

namespace emulated {
namespace {

std::atomic<bool> isForked{false};

bool isKeptOff() {
  constexpr std::size_t kLongestName = 16;
  char name[kLongestName] = {};
  const std::string& keptOff = settings().keptOff;
  return !keptOff.empty() && pthread_getname_np(pthread_self(), name, sizeof name) == 0 && keptOff == name;
}

}  // namespace

HostThread& hostThread() {
  static thread_local HostThread thread;
  return thread;
}

cudaError_t failed(cudaError_t error) {
  hostThread().lastError = error;
  return error;
}

void noteFirstUse() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { isForked = true; }); });
}

bool mayCall(const char* name) {
  if (hostThread().isInHostFunction) fatal("%s was called by a function that a stream calls: CUDA forbids it", name);
  if (isKeptOff()) fatal("%s was called by a thread named %s", name, settings().keptOff.c_str());
  return !isForked;
}

bool isForbiddenByCapture(const char* name) {
  const HostThread& thread = hostThread();
  if (thread.captureMode == cudaStreamCaptureModeRelaxed) return false;
  for (const Capture* capture : Devices::all().captures) {
    const bool isOwn = capture->thread == std::this_thread::get_id();
    const bool isGlobal =
        capture->mode == cudaStreamCaptureModeGlobal && thread.captureMode == cudaStreamCaptureModeGlobal;
    if (capture->mode == cudaStreamCaptureModeRelaxed || (!isOwn && !isGlobal)) continue;
    say("%s was called while a capture forbids it", name);
    return true;
  }
  return false;
}

}  // namespace emulated
