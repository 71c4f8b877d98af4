#include "call_counts.h"

#include <dlfcn.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace emulated {
namespace {

std::atomic<bool> isCounting{false};
std::mutex counting;                                    // the next
std::map<std::pair<std::string, std::string>, int> of;  // a library's file and a call

}  // namespace

void countCall(const char* call, const void* caller) {
  Dl_info from;
  if (!isCounting || dladdr(caller, &from) == 0) return;
  const std::lock_guard lock(counting);
  ++of[{from.dli_fname, call}];
}

}  // namespace emulated

void cudaEmulatedCount() {
  const std::lock_guard lock(emulated::counting);
  emulated::of.clear();
  emulated::isCounting = true;
}

const char* cudaEmulatedCounts(const char* library) {
  static thread_local std::string lines;
  const std::lock_guard lock(emulated::counting);
  emulated::isCounting = false;
  lines.clear();
  for (const auto& [from, times] : emulated::of) {
    if (from.first.find(library) != std::string::npos) lines += from.second + " " + std::to_string(times) + "\n";
  }
  return lines.c_str();
}
