#include "plan/cost_rows.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"

namespace fairring {

namespace {

struct Named {
  const char* transport;
  CostRow rail;
  CostRow site;
};

// docs/algorithms.md says which of these numbers were measured and which are assumed.
constexpr CostRow kSharedMemory{15e-6, 2e-6, 5e9, 8e9};
constexpr CostRow kNccl{25e-6, 0, 50e9, 50e9};
constexpr double kHandOverSeconds = 20e-6;  // to the loop and back, in each step
constexpr double kPinnedBytesPerSecond = 20e9;
constexpr std::array kNetworks{
    Named{"tcp", {40e-6, 10e-6, 1.25e9, 8e9}, {10e-3, 10e-6, 0.125e9, 8e9}},
    Named{"uv", {120e-6, 20e-6, 1.25e9, 8e9}, {10e-3, 20e-6, 0.125e9, 8e9}},
    Named{"shm", {50e-6, 20e-6, 3.3e9, 8e9}, {50e-6, 20e-6, 3.3e9, 8e9}},
    Named{"verbs", {10e-6, 5e-6, 12.5e9, 8e9}, {1e-3, 5e-6, 1.25e9, 8e9}},
    Named{"ibv", {30e-6, 20e-6, 12.5e9, 8e9}, {1e-3, 20e-6, 1.25e9, 8e9}},
};

const Named& named(const std::string& transport) {
  const auto found = std::ranges::find(kNetworks, transport, &Named::transport);
  check(found != kNetworks.end(), ErrorKind::Configuration, "no cost row for the transport '", transport, "'");
  return *found;
}

}  // namespace

std::vector<CostRow> builtInRows(const std::string& rail, const std::string& site) {
  return {kSharedMemory, named(rail).rail, named(site).site};
}

std::vector<CostRow> rowsOnDevice(std::vector<CostRow> ofCpu) {
  ofCpu.front() = kNccl;
  for (CostRow& network : std::span(ofCpu).subspan(1)) {
    network.latencySeconds += kHandOverSeconds;
    network.summedBytesPerSecond = kPinnedBytesPerSecond;
  }
  return ofCpu;
}

}  // namespace fairring
