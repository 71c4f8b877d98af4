// The functions of libibverbs that are used here, found at run time: the module needs the library only where there is a
// device. Loaded once and never closed: drivers are hardly tested for being unloaded. From then on a fork leaves this
// process the memory that the device knows. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/verbs_abi.h"

namespace fairring {

struct VerbsLibrary {
  verbs::Device** (*getDevices)(int* count);
  void (*freeDevices)(verbs::Device**);
  const char* (*nameOf)(verbs::Device*);
  verbs::Context* (*openDevice)(verbs::Device*);
  int (*closeDevice)(verbs::Context*);
  int (*queryPort)(verbs::Context*, std::uint8_t port, verbs::PortState*);
  verbs::ProtectionDomain* (*allocateDomain)(verbs::Context*);
  int (*freeDomain)(verbs::ProtectionDomain*);
  verbs::MemoryRegion* (*registerMemory)(verbs::ProtectionDomain*, void*, std::size_t, int access);
  int (*deregisterMemory)(verbs::MemoryRegion*);
  verbs::CompletionChannel* (*createChannel)(verbs::Context*);
  int (*destroyChannel)(verbs::CompletionChannel*);
  verbs::CompletionQueue* (*createCompletions)(verbs::Context*, int entries, void* ours, verbs::CompletionChannel*,
                                               int vector);
  int (*destroyCompletions)(verbs::CompletionQueue*);
  int (*getEvent)(verbs::CompletionChannel*, verbs::CompletionQueue**, void** ours);
  void (*acknowledgeEvents)(verbs::CompletionQueue*, unsigned count);
  verbs::QueuePair* (*createQueuePair)(verbs::ProtectionDomain*, verbs::QueuePairMaking*);
  int (*modifyQueuePair)(verbs::QueuePair*, verbs::QueuePairState*, int fields);
  int (*destroyQueuePair)(verbs::QueuePair*);
  const char* (*textOf)(std::uint32_t completionStatus);
  int (*getAsyncEvent)(verbs::Context*, verbs::AsyncEvent*);
  void (*acknowledgeAsyncEvent)(verbs::AsyncEvent*);
  const char* (*textOfEvent)(std::uint32_t type);
  int (*prepareForForks)();  // null: a library without it

  static const VerbsLibrary* load();  // null: it is not there, or lacks one of the others
};

}  // namespace fairring
