#include "device/nccl.h"

#include "base/loaded_function.h"

namespace fairring {

FAIRRING_LOADED(ncclGetErrorString);
FAIRRING_LOADED(ncclGetLastError);
FAIRRING_LOADED(ncclGetUniqueId);
FAIRRING_LOADED(ncclCommInitRankConfig);
FAIRRING_LOADED(ncclCommGetAsyncError);
FAIRRING_LOADED(ncclCommFinalize);
FAIRRING_LOADED(ncclCommDestroy);
FAIRRING_LOADED(ncclCommAbort);
FAIRRING_LOADED(ncclGroupStart);
FAIRRING_LOADED(ncclGroupEnd);
FAIRRING_LOADED(ncclReduceScatter);
FAIRRING_LOADED(ncclReduce);
FAIRRING_LOADED(ncclAllGather);
FAIRRING_LOADED(ncclBroadcast);

}  // namespace fairring
