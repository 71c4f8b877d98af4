// The emulator's messages on standard error. Any thread; one write each, so that lines of processes do not mix.
#pragma once

namespace emulated {

[[gnu::visibility("default"), gnu::format(printf, 1, 2)]] void say(const char* format, ...);
// Ends the process: the program did what a device leaves undefined, or what nobody emulates yet.
[[noreturn, gnu::visibility("default"), gnu::format(printf, 1, 2)]] void fatal(const char* format, ...);

}  // namespace emulated
