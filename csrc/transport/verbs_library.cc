#include "transport/verbs_library.h"

#include <dlfcn.h>

#include <optional>

namespace fairring {

namespace {

std::optional<VerbsLibrary> loaded() {
  void* const library = ::dlopen("libibverbs.so.1", RTLD_LOCAL | RTLD_NOW);
  if (library == nullptr) return std::nullopt;
  bool isWhole = true;
  const auto find = [&]<class Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    isWhole = isWhole && function != nullptr;
  };
  VerbsLibrary found{};
  find(found.getDevices, "ibv_get_device_list");
  find(found.freeDevices, "ibv_free_device_list");
  find(found.nameOf, "ibv_get_device_name");
  find(found.openDevice, "ibv_open_device");
  find(found.closeDevice, "ibv_close_device");
  find(found.queryPort, "ibv_query_port");
  find(found.allocateDomain, "ibv_alloc_pd");
  find(found.freeDomain, "ibv_dealloc_pd");
  find(found.registerMemory, "ibv_reg_mr");
  find(found.deregisterMemory, "ibv_dereg_mr");
  find(found.createChannel, "ibv_create_comp_channel");
  find(found.destroyChannel, "ibv_destroy_comp_channel");
  find(found.createCompletions, "ibv_create_cq");
  find(found.destroyCompletions, "ibv_destroy_cq");
  find(found.getEvent, "ibv_get_cq_event");
  find(found.acknowledgeEvents, "ibv_ack_cq_events");
  find(found.createQueuePair, "ibv_create_qp");
  find(found.modifyQueuePair, "ibv_modify_qp");
  find(found.destroyQueuePair, "ibv_destroy_qp");
  find(found.textOf, "ibv_wc_status_str");
  find(found.getAsyncEvent, "ibv_get_async_event");
  find(found.acknowledgeAsyncEvent, "ibv_ack_async_event");
  find(found.textOfEvent, "ibv_event_type_str");
  if (!isWhole) return std::nullopt;
  found.prepareForForks = reinterpret_cast<int (*)()>(::dlsym(library, "ibv_fork_init"));
  // Before anything is registered, or the queues of a process that forks could move to pages that the device does not
  // know. Kernels since 5.12 see to that by themselves. It fails only where another library of this process has
  // registered memory before, and then that one has decided.
  if (found.prepareForForks != nullptr) found.prepareForForks();
  return found;
}

}  // namespace

const VerbsLibrary* VerbsLibrary::load() {
  static const std::optional<VerbsLibrary> library = loaded();
  return library ? &*library : nullptr;
}

}  // namespace fairring
