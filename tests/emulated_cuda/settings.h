// The settings of the emulated devices from a program's environment. Read at a process's first use, by the one thread
// that it has then if it was forked; any thread; never changes.
#pragma once

#include <cstddef>
#include <string>

namespace emulated {

struct Settings {
  int devices = 0;                // EMULATED_CUDA_DEVICES
  std::size_t deviceBytes = 0;    // EMULATED_CUDA_MEMORY_MIB
  int multiprocessors = 0;        // EMULATED_CUDA_MULTIPROCESSORS
  int generation = 0;             // EMULATED_CUDA_GENERATION: the major number of its compute capability
  unsigned seed = 0;              // EMULATED_CUDA_SEED: of all pauses
  int lateMicroseconds = 0;       // EMULATED_CUDA_LATE_US: the longest pause before a piece of work; 0: none
  int lateOneIn = 0;              // EMULATED_CUDA_LATE_ONE_IN: how many pieces of work there are to a pause
  int queues = 0;                 // CUDA_DEVICE_MAX_CONNECTIONS: hardware queues that the streams of a device share
  bool allocationsWait = true;    // EMULATED_CUDA_ALLOCATIONS_WAIT: cudaMalloc, cudaHostAlloc wait for an idle device
  bool loadsWait = true;          // EMULATED_CUDA_LOADS_WAIT, CUDA_MODULE_LOADING: so does the first launch of a kernel
  std::string keptOff;            // EMULATED_CUDA_KEEP_OFF: threads of that name that may make no call; empty: none
  bool driverLock = false;        // EMULATED_CUDA_DRIVER_LOCK: host functions wait for calls that wait for the device
  int gatesLateMicroseconds = 0;  // EMULATED_CUDA_GATES_LATE_US: how long after its word has come a wait for it is over
  int ncclLateMicroseconds =
      0;                 // EMULATED_NCCL_LATE_US: how much longer calls of communicators take that are not Fairring's
  std::string launches;  // EMULATED_CUDA_LAUNCHES: a folder, where each process writes down NCCL's; empty: none
};

const Settings& settings();

// Calls that do nothing, for tests that see whether a program without them is noticed. Without its order, what a
// stream writes into a word is written at once.
// EMULATED_CUDA_OMIT=KIND:LIBRARY:INDEX:PERIOD leaves out each call of the kind from a library of that name whose
// number is INDEX modulo PERIOD.
enum class Omission { None, StreamWaitEvent, WaitValue, WriteValue, WriteValueOrder, Kernel };
bool leavesOut(Omission kind);                      // any
bool isLeftOut(Omission kind, const void* caller);  // caller: an address in its code

}  // namespace emulated
