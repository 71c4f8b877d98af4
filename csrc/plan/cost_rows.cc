#include "plan/cost_rows.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace fairring {

namespace {

struct Named {
  const char* transport;
  CostRow row;
};

// docs/algorithms.md says which of these numbers were measured and which are assumed.
constexpr CostRow kSharedMemory{15e-6, 2e-6, 5e9, 8e9};
constexpr std::array kRails{
    Named{"tcp", {40e-6, 10e-6, 1.25e9, 8e9}},
    Named{"uv", {120e-6, 20e-6, 1.25e9, 8e9}},
    Named{"shm", {50e-6, 20e-6, 3.3e9, 8e9}},
    Named{"ibv", {30e-6, 20e-6, 12.5e9, 8e9}},
};

}  // namespace

std::vector<CostRow> builtInRows(const std::string& transport) {
  const auto found = std::ranges::find(kRails, transport, &Named::transport);
  check(found != kRails.end(), ErrorKind::Configuration, "no cost row for the transport '", transport, "'");
  return {kSharedMemory, found->row, found->row};
}

}  // namespace fairring
