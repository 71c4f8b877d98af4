// Whether a rank's process has gone, as seen from outside: nobody listens where it did. Any thread; waits for a second
// at most.
#pragma once

#include <string>

namespace fairring {

// Anything but a refusal is for others to find out, and to explain.
bool refusesConnection(const std::string& address, int port);

}  // namespace fairring
