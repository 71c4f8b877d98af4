// The kinds of channels that the levels above the machine use.
#pragma once

#include <cstdint>
#include <string>

namespace fairring {

struct Transport {
  enum class Kind { Tcp, TensorPipe } kind = Kind::Tcp;
  std::string tensorpipe;   // "uv", "shm" or "ibv", if TensorPipe is used
  std::uint32_t lanes = 1;  // TCP only: connections to a peer

  std::string name() const { return kind == Kind::Tcp ? "tcp" : tensorpipe; }  // in the table of cost rows
};

struct Transports {
  Transport rail;  // between the machines of a site
  Transport site;  // between sites
};

}  // namespace fairring
