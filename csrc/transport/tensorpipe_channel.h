// Channels of TensorPipe, the library that PyTorch's own wheel brings along. This header shows nothing of it. A batch
// is a TensorPipe message: its metadata are the messages' headers, its payloads the bytes of those that have any, in
// the same order, or a single byte if none has. Tensors are not used: their channels open more connections and were no
// faster (shm: cma slower at every size up to 1 MiB; uv: basic the same, mpt slower below 1 MiB).
//
// Received bytes count as seen batch by batch: a long one is no sign of life while it comes in. Bytes that are not read
// yet when close() comes may be lost, though their memory has been released: with shm they lie in memory that the peer
// gives up when it sees the end.
#pragma once

#include "transport/transport.h"

namespace fairring {

// The entry of TensorPipe's "uv", "shm" or "ibv". The channels to one set of peers share TensorPipe's threads, and so
// end together.
Transport tensorPipeTransport(const std::string& name);

}  // namespace fairring
