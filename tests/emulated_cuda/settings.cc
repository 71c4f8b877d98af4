#include "settings.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "report.h"

namespace emulated {
namespace {

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : static_cast<int>(std::strtol(text, nullptr, 10));
}

Settings read() {
  Settings read;
  read.devices = number("EMULATED_CUDA_DEVICES", 4);
  read.deviceBytes = static_cast<std::size_t>(number("EMULATED_CUDA_MEMORY_MIB", 4096)) << 20;
  read.multiprocessors = number("EMULATED_CUDA_MULTIPROCESSORS", 132);
  read.generation = number("EMULATED_CUDA_GENERATION", 9);
  read.seed = static_cast<unsigned>(number("EMULATED_CUDA_SEED", 1));
  read.lateMicroseconds = number("EMULATED_CUDA_LATE_US", 0);
  read.lateOneIn = number("EMULATED_CUDA_LATE_ONE_IN", 4);
  read.queues = number("CUDA_DEVICE_MAX_CONNECTIONS", 8);
  read.allocationsWait = number("EMULATED_CUDA_ALLOCATIONS_WAIT", 1) != 0;
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  const bool loadsLate = loading == nullptr || std::string_view(loading) != "EAGER";
  read.loadsWait = loadsLate && number("EMULATED_CUDA_LOADS_WAIT", 1) != 0;
  if (const char* name = std::getenv("EMULATED_CUDA_KEEP_OFF"); name != nullptr) read.keptOff = name;
  read.driverLock = number("EMULATED_CUDA_DRIVER_LOCK", 0) != 0;
  read.gatesLateMicroseconds = number("EMULATED_CUDA_GATES_LATE_US", 0);
  read.ncclLateMicroseconds = number("EMULATED_NCCL_LATE_US", 0);
  if (const char* folder = std::getenv("EMULATED_CUDA_LAUNCHES"); folder != nullptr) read.launches = folder;
  if (read.devices < 0 || read.queues < 1 || read.lateOneIn < 1)
    fatal("settings: %d devices, %d hardware queues, one pause in %d", read.devices, read.queues, read.lateOneIn);
  return read;
}

struct Omitted {
  Omission kind = Omission::None;
  std::string library;
  int index = 0;
  int period = 1;
};

Omitted readOmitted() {
  const char* text = std::getenv("EMULATED_CUDA_OMIT");
  if (text == nullptr || *text == '\0') return {};
  std::istringstream parts(text);
  std::string kind;
  std::getline(parts, kind, ':');
  Omitted omitted;
  std::getline(parts, omitted.library, ':');
  char colon = 0;
  parts >> omitted.index >> colon >> omitted.period;
  if (kind == "stream_wait_event") omitted.kind = Omission::StreamWaitEvent;
  if (kind == "wait_value") omitted.kind = Omission::WaitValue;
  if (kind == "write_value") omitted.kind = Omission::WriteValue;
  if (kind == "kernel") omitted.kind = Omission::Kernel;
  if (kind == "write_value_order") omitted.kind = Omission::WriteValueOrder;
  if (!parts || omitted.kind == Omission::None || omitted.period < 1)
    fatal("EMULATED_CUDA_OMIT=%s: not understood", text);
  return omitted;
}

const Omitted& omission() {
  static const Omitted omitted = readOmitted();
  return omitted;
}

}  // namespace

const Settings& settings() {
  static std::atomic<bool> isForked = false;
  static const int noted = pthread_atfork(nullptr, nullptr, [] { isForked = true; });
  static Settings all = read();
  if (noted == 0 && isForked && isForked.exchange(false)) all = read();  // it may have variables of its own by now
  return all;
}

bool leavesOut(Omission kind) { return omission().kind == kind; }

bool isLeftOut(Omission kind, const void* caller) {
  static std::atomic<int> calls{0};
  const Omitted& omitted = omission();
  Dl_info from;
  if (omitted.kind != kind || dladdr(caller, &from) == 0) return false;
  if (std::string_view(from.dli_fname).find(omitted.library) == std::string_view::npos) return false;
  return calls++ % omitted.period == omitted.index;
}

}  // namespace emulated
