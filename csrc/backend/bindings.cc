// The Python module fairring._core: makes backends and ends them. No logic here.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend/cuda_device.h"
#include "backend/fairring_backend.h"
#include "backend/inspection.h"
#include "kernels/reduce.h"

namespace py = pybind11;
using fairring::FairringBackend;
using fairring::MembershipOptions;
using NcclLimitNumbers =
    std::tuple<std::optional<int>, std::optional<int>, std::optional<int>, std::optional<int>, std::string>;

PYBIND11_MODULE(_core, module) {
  // torch's new_group calls this on the ranks outside of the new group, if a device is bound to the default one. NCCL
  // needs all ranks of a communicator for a split; groups of ours are made by their members alone.
  py::class_<FairringBackend, c10::intrusive_ptr<FairringBackend>, c10d::Backend>(module, "FairringBackend")
      .def("perform_nocolor_split", [](const FairringBackend&, const py::object&) {}, py::arg("device"));
  py::class_<MembershipOptions>(module, "MembershipOptions")
      .def(py::init<>())
      .def_readwrite("name", &MembershipOptions::name)
      .def_readwrite("rank", &MembershipOptions::rank)
      .def_readwrite("size", &MembershipOptions::size)
      .def_readwrite("global_ranks", &MembershipOptions::globalRanks)
      .def_readwrite("total_memory", &MembershipOptions::totalMemoryBytes)
      .def_readwrite("slice_size", &MembershipOptions::sliceBytes)
      .def_readwrite("heartbeat_timeout", &MembershipOptions::heartbeatTimeout)
      .def_readwrite("trace_directory", &MembershipOptions::traceDirectory)
      .def_property("secret", nullptr, [](MembershipOptions& o, const py::bytes& bytes) { o.secret = bytes; })
      .def_property("tls", nullptr,
                    [](MembershipOptions& o, const std::tuple<std::string, std::string, std::string>& files) {
                      const auto& [certificate, key, authority] = files;
                      o.tls = std::make_shared<fairring::Tls>(fairring::TlsFiles{certificate, key, authority});
                    })
      .def_property("machine", nullptr,
                    [](MembershipOptions& o, const std::string& text) { o.facts.place.machine = text; })
      .def_property("site", nullptr, [](MembershipOptions& o, const std::string& text) { o.facts.place.site = text; })
      .def_property("hostname", nullptr, [](MembershipOptions& o, const std::string& text) { o.facts.hostname = text; })
      .def_property("addresses", nullptr,
                    [](MembershipOptions& o, std::vector<std::string> texts) { o.facts.addresses = std::move(texts); })
      .def_property("site_addresses", nullptr,
                    [](MembershipOptions& o, std::vector<std::string> t) { o.facts.siteAddresses = std::move(t); })
      .def_property("network", nullptr, [](MembershipOptions& o, const std::string& text) { o.facts.network = text; })
      .def_property("interfaces_by", nullptr,
                    [](MembershipOptions& o, const std::string& text) { o.facts.interfacesBy = text; })
      .def_property("settings", nullptr, [](MembershipOptions& o, const std::string& text) { o.facts.settings = text; })
      .def_property("cost_rows", nullptr,
                    [](MembershipOptions& o, const std::vector<fairring::RowNumbers>& rows) {
                      o.rows = fairring::costRowsOf(rows);
                    })
      .def_property("ports", nullptr,
                    [](MembershipOptions& o, std::pair<int, int> p) { o.ports = {p.first, p.second}; })
      .def_property("transports", nullptr,
                    [](MembershipOptions& o, std::pair<std::string, std::string> railAndSite) {
                      o.transport = {std::move(railAndSite.first), std::move(railAndSite.second)};
                    })
      .def_property("lanes", nullptr,
                    [](MembershipOptions& o, std::pair<std::uint32_t, std::uint32_t> railAndSite) {
                      std::tie(o.lanes, o.siteLanes) = railAndSite;
                    })
      .def_readwrite("helpers", &MembershipOptions::helpers)
      .def_readwrite("ranks_here", &MembershipOptions::ranksHere)
      .def_readwrite("devices", &MembershipOptions::devices)
      .def_readwrite("devices_on_trial", &MembershipOptions::devicesOnTrial)
      .def_readwrite("least_on_device", &MembershipOptions::leastOnDevice)
      .def_readwrite("ends_process", &MembershipOptions::endsProcess)
      .def_readwrite("ends_process_with_device", &MembershipOptions::endsProcessWithDevice)
      .def_readwrite("stands_for_gloo", &MembershipOptions::standsForGloo)
      .def_readwrite("reconfigurable", &MembershipOptions::reconfigurable)
      .def_property("device_machine", nullptr,
                    [](MembershipOptions& o, const std::string& text) { o.facts.device.machine = text; })
      .def_property("device_obstacle", nullptr,
                    [](MembershipOptions& o, const std::string& text) { o.facts.device.obstacle = text; })
      .def_property("device_fabric", nullptr,
                    [](MembershipOptions& o, const std::string& text) { o.facts.device.fabric = text; })
      .def_property("nccl_limits", nullptr, [](MembershipOptions& o, const NcclLimitNumbers& limits) {
        std::tie(o.ncclLimits.clusterSize, o.ncclLimits.leastBlocks, o.ncclLimits.mostBlocks, o.ncclLimits.trafficClass,
                 o.ncclLimits.network) = limits;
      });
  const auto make = [](const FairringBackend::StorePtr& store, const MembershipOptions& options,
                       std::chrono::milliseconds timeout, FairringBackend::MakeNccl makeNccl) {
    std::shared_ptr<const FairringBackend::MakeNccl> shared;
    if (makeNccl) shared = std::make_shared<const FairringBackend::MakeNccl>(std::move(makeNccl));
    return FairringBackend::make(store, {options, std::move(shared)}, timeout);
  };
  module.def("make_backend", make, py::arg("store"), py::arg("options"), py::arg("timeout"), py::arg("make_nccl"),
             py::call_guard<py::gil_scoped_release>());
  module.def("all_reduce_between_sites", &FairringBackend::allReduceBetweenSites, py::arg("backend"),
             py::arg("site_format"), py::arg("tensor"), py::arg("residual"), py::arg("op"),
             py::call_guard<py::gil_scoped_release>());
  module.def("inspect", &fairring::inspect, py::arg("backend"));
  module.def("traffic", &fairring::traffic, py::arg("backend"));
  module.def("trace", &fairring::trace, py::arg("backend"), py::arg("calls"));
  module.def("write_traces", &FairringBackend::writeTraces, py::arg("calls"), py::arg("program") = "",
             py::call_guard<py::gil_scoped_release>());
  module.def("device_way", &fairring::deviceWay, py::arg("backend"));
  module.def("first_error", &fairring::firstError, py::arg("backend"));
  module.def("shown_error", &fairring::shownError, py::arg("text"));
  module.def("mark", &fairring::mark, py::arg("backend"));
  module.def("last_complete", &fairring::lastComplete, py::arg("backend"));
  module.def("transports", &fairring::transportNames);
  module.def("rdma_devices", &fairring::rdmaDevicesHere, py::arg("transport"));
  module.def("rdma_obstacle", &fairring::rdmaObstacleHere, py::arg("transport"), py::arg("peers"),
             py::arg("total_memory"));
  module.def("instruction_set", &fairring::instructionSet);
  module.def("built_in_rows", &fairring::builtInRowNumbers, py::arg("rail"), py::arg("site") = "tcp");
  using fairring::PlanQuestion;
  py::class_<PlanQuestion>(module, "PlanQuestion")
      .def(py::init<>())
      .def_readwrite("machines", &PlanQuestion::machines)
      .def_readwrite("sites", &PlanQuestion::sites)
      .def_readwrite("site_format", &PlanQuestion::siteFormat)
      .def_readwrite("total_memory", &PlanQuestion::totalMemoryBytes)
      .def_readwrite("slice_size", &PlanQuestion::sliceBytes)
      .def_readwrite("rows", &PlanQuestion::rows)
      .def_readwrite("bytes", &PlanQuestion::bytes)
      .def_readwrite("flat", &PlanQuestion::flat);
  module.def("forecast", &fairring::forecast, py::arg("question"));
  module.def("why_no_cuda", &fairring::whyNoCuda);
  module.def("end_all", &FairringBackend::endAll, py::arg("failed"), py::call_guard<py::gil_scoped_release>());
}
