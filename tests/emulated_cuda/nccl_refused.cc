// NCCL functions that torch's libraries are linked to and no test needs. A call is reported and refused.
#include "report.h"

namespace {

constexpr int kInvalidUsage = 5;  // ncclInvalidUsage

}  // namespace

#define REFUSED(name)                                           \
  extern "C" int name() {                                       \
    emulated::say("%s is not emulated and was refused", #name); \
    return kInvalidUsage;                                       \
  }

REFUSED(ncclCommGetUniqueId)
REFUSED(ncclCommGrow)
REFUSED(ncclCommInitAll)
REFUSED(ncclCommMemStats)
REFUSED(ncclCommResume)
REFUSED(ncclCommRevoke)
REFUSED(ncclCommShrink)
REFUSED(ncclCommSuspend)
REFUSED(ncclCommWindowDeregister)
REFUSED(ncclCommWindowRegister)
REFUSED(ncclDevCommCreate)
REFUSED(ncclDevCommDestroy)
REFUSED(ncclGetLsaMultimemDevicePointer)
REFUSED(ncclGetPeerDevicePointer)
REFUSED(ncclGroupSimulateEnd)
REFUSED(ncclPutSignal)
REFUSED(ncclSignal)
REFUSED(ncclWaitSignal)
REFUSED(ncclWinGetUserPtr)
