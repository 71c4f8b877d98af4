// Shows people what a group and the planner know: the answers of `fairring check` and `fairring plan`, as Python
// dicts. Callers hold the GIL; inspect(), traffic() and trace() release it while they wait for the other ranks or the
// loop.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "plan/planner.h"

namespace fairring {

using RowNumbers = std::array<double, 4>;  // of a CostRow, in its order

std::vector<CostRow> costRowsOf(const std::vector<RowNumbers>& rows);
std::vector<RowNumbers> builtInRowNumbers(const std::string& rail, const std::string& site);

// The facts of all ranks of a group, and the transports that follow. Throws what the first use of the group would
// throw. None if the backend is not ours, has ended, or has one rank.
pybind11::object inspect(const c10::intrusive_ptr<c10d::Backend>& backend);

// The traffic of this rank in a group, by level. None if the backend is not ours.
pybind11::object traffic(const c10::intrusive_ptr<c10d::Backend>& backend);

// The trace of this rank's last calls (group/trace.h). None where the backend is not ours.
pybind11::object trace(const c10::intrusive_ptr<c10d::Backend>& backend, std::size_t calls);

// Who carries out the group's calls on CUDA tensors, and why, in words. None before the first one, or if the backend is
// not ours.
pybind11::object deviceWay(const c10::intrusive_ptr<c10d::Backend>& backend);

// The error that has ended a group, as text. None if it has not ended, or the backend is not ours.
pybind11::object firstError(const c10::intrusive_ptr<c10d::Backend>& backend);

// The kind and the ranks of an error that the program was shown as an exception with this text. None: of no such.
pybind11::object shownError(const std::string& text);

// This rank's position: how many groups it has left, and how many calls it has made in this one. None: not ours.
pybind11::object mark(const c10::intrusive_ptr<c10d::Backend>& backend);
// The ranks' agreement when they met: this rank's mark of the last complete call, or none, and how many calls were
// complete on each rank, or none. None if there was nothing to agree on, or the backend is not ours.
pybind11::object lastComplete(const c10::intrusive_ptr<c10d::Backend>& backend);

std::vector<std::string> transportNames();  // in the table's order (backend/transports.h)

// The ports that this transport could take, each with its obstacle. "auto" stands for the one that it would take.
pybind11::list rdmaDevicesHere(const std::string& transport);
// Why this process can't use RDMA at all by this transport; empty if it can.
std::string rdmaObstacleHere(const std::string& transport, int peers, std::uint64_t totalMemoryBytes);

struct PlanQuestion {
  std::vector<std::string> machines;  // of each rank
  std::vector<std::string> sites;     // of each rank; none: they stand in one
  std::uint64_t totalMemoryBytes = 0;
  std::uint64_t sliceBytes = 0;
  std::vector<RowNumbers> rows;  // by level
  std::uint64_t bytes = 0;       // of the call
  std::string siteFormat;        // in which it crosses between sites; empty: as it is
  bool flat = false;             // as if machines never stood in groups
};
std::vector<Place> placesOf(const PlanQuestion& question);
GroupingFrom groupingOf(const PlanQuestion& question);
pybind11::list forecast(const PlanQuestion& question);  // every plan, the best first

}  // namespace fairring
