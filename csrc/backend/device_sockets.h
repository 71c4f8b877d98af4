// The connections of a Gloo device, which Gloo has no means of breaking off: a call that waits for a peer that is stuck
// would keep Gloo's threads, its memory and the tensors until its timeout. A device watches all its sockets by one
// epoll descriptor, and the kernel lists what such a descriptor watches; a socket that is shut down ends every call on
// it at once.
//
// Any thread. Shut is only what is certain to be watched: it is compared by inode after it has been duplicated, for a
// descriptor's number may be another file's by then.
#pragma once

#include <vector>

namespace fairring {

std::vector<int> epollDescriptors();  // all of this process

void shutConnections(int epoll);  // all that it watches, not the listening ones

}  // namespace fairring
