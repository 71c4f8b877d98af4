// The two traffic classes of messages: those of small calls do not stand behind those of large ones. They share what
// can't be held up for long: channels (send_queue.h) and the loop's time (loop.h), where express goes first, but not
// always, so that bulk gets on too.
#pragma once

#include <cstdint>

namespace fairring {

enum class TrafficClass : std::uint8_t { Bulk, Express };

}  // namespace fairring
