// The two traffic classes of messages: small calls do not queue behind large ones. The classes share only resources
// that can't be held up for long: channels (send_queue.h) and the loop's time (loop.h). There express goes first, but
// not always, so that bulk gets on too.
#pragma once

#include <cstdint>

namespace fairring {

enum class TrafficClass : std::uint8_t { Bulk, Express };

}  // namespace fairring
