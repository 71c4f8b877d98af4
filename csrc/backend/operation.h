// The names of c10d's operations, once: c10d's own number, the word for messages and comparisons, the profiler's title.
// A title is Gloo's, with our name before the colon, because programs look for it: a kind of call has one, whether its
// tensors are lists, parts of one tensor or coalesced. Calls that Gloo makes of others (reduce-scatters) have their
// own.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace fairring {

struct Operation {
  c10d::OpType type;
  const char* verb;
  const char* title;  // lives for ever: c10d keeps the pointer
};

namespace operation {

using Type = c10d::OpType;

#ifdef C10D_BACKEND_HAS_HOOKS
inline constexpr Type kManyGathered = Type::ALLGATHER_INTO_TENSOR_COALESCED;
inline constexpr Type kManyReduced = Type::REDUCE_SCATTER_TENSOR_COALESCED;
#else  // before 2.14 these had no numbers of their own
inline constexpr Type kManyGathered = Type::ALLGATHER_COALESCED;
inline constexpr Type kManyReduced = Type::_REDUCE_SCATTER_BASE;
#endif

inline constexpr Operation kBroadcast{Type::BROADCAST, "broadcast", "fairring:broadcast"};
inline constexpr Operation kAllReduce{Type::ALLREDUCE, "all_reduce", "fairring:all_reduce"};
inline constexpr Operation kAllReduceSparse{Type::_ALLREDUCE_SPARSE, "sparse all_reduce", "fairring:sparse_all_reduce"};
inline constexpr Operation kAllReduceCoalesced{Type::ALLREDUCE_COALESCED, "all_reduce_coalesced",
                                               "fairring:all_reduce"};
inline constexpr Operation kReduce{Type::REDUCE, "reduce", "fairring:reduce"};
inline constexpr Operation kAllGather{Type::ALLGATHER, "all_gather", "fairring:all_gather"};
inline constexpr Operation kAllGatherIntoTensor{Type::_ALLGATHER_BASE, "all_gather_into_tensor", "fairring:all_gather"};
inline constexpr Operation kAllGatherCoalesced{Type::ALLGATHER_COALESCED, "all_gather_coalesced",
                                               "fairring:all_gather"};
inline constexpr Operation kAllGatherIntoTensorCoalesced{kManyGathered, "all_gather_into_tensor_coalesced",
                                                         "fairring:all_gather"};
inline constexpr Operation kGather{Type::GATHER, "gather", "fairring:gather"};
inline constexpr Operation kGatherIntoTensor{Type::GATHER, "gather_into_tensor", "fairring:gather"};
inline constexpr Operation kScatter{Type::SCATTER, "scatter", "fairring:scatter"};
inline constexpr Operation kReduceScatter{Type::REDUCE_SCATTER, "reduce_scatter", "fairring:reduce_scatter"};
inline constexpr Operation kReduceScatterTensor{Type::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor",
                                                "fairring:reduce_scatter_tensor"};
inline constexpr Operation kReduceScatterTensorCoalesced{kManyReduced, "reduce_scatter_tensor_coalesced",
                                                         "fairring:reduce_scatter_tensor_coalesced"};
inline constexpr Operation kAllToAllSingle{Type::ALLTOALL_BASE, "all_to_all_single", "fairring:all_to_all"};
inline constexpr Operation kAllToAll{Type::ALLTOALL, "all_to_all", "fairring:all_to_all"};
inline constexpr Operation kSend{Type::SEND, "send", "fairring:send"};
inline constexpr Operation kReceive{Type::RECV, "recv", "fairring:recv"};
inline constexpr Operation kReceiveAnySource{Type::RECVANYSOURCE, "recv from any rank", "fairring:recvAnySource"};
inline constexpr Operation kBarrier{Type::BARRIER, "barrier", "fairring:barrier"};
inline constexpr Operation kReconfigure{Type::BARRIER, "reconfigure", "fairring:reconfigure"};
inline constexpr Operation kMonitoredBarrier{Type::BARRIER, "monitored_barrier", "fairring:monitored_barrier"};

}  // namespace operation
}  // namespace fairring
