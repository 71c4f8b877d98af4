// The Python module fairring._core: makes backends and ends them. No logic here.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "backend/device_sockets.h"
#include "backend/fairring_backend.h"

namespace py = pybind11;
using fairring::FairringBackend;
using fairring::MembershipOptions;

PYBIND11_MODULE(_core, module) {
  py::class_<MembershipOptions>(module, "MembershipOptions")
      .def(py::init<>())
      .def_readwrite("name", &MembershipOptions::name)
      .def_readwrite("rank", &MembershipOptions::rank)
      .def_readwrite("size", &MembershipOptions::size)
      .def_readwrite("global_ranks", &MembershipOptions::globalRanks)
      .def_readwrite("total_memory", &MembershipOptions::totalMemoryBytes)
      .def_readwrite("slice_size", &MembershipOptions::sliceBytes)
      .def_readwrite("heartbeat_timeout", &MembershipOptions::heartbeatTimeout)
      .def_property("secret", nullptr, [](MembershipOptions& o, const py::bytes& bytes) { o.secret = bytes; })
      .def_property("machine", nullptr,
                    [](MembershipOptions& o, const std::string& text) { o.facts.place.machine = text; })
      .def_property("hostname", nullptr, [](MembershipOptions& o, const std::string& text) { o.facts.hostname = text; })
      .def_property("addresses", nullptr,
                    [](MembershipOptions& o, std::vector<std::string> texts) { o.facts.addresses = std::move(texts); })
      .def_property("settings", nullptr, [](MembershipOptions& o, const std::string& text) { o.facts.settings = text; })
      .def_property("ports", nullptr,
                    [](MembershipOptions& o, std::pair<int, int> p) { o.ports = {p.first, p.second}; })
      .def_readwrite("transport", &MembershipOptions::transport)
      .def_readwrite("lanes", &MembershipOptions::lanes);
  const auto make = [](const FairringBackend::StorePtr& store, const MembershipOptions& options,
                       std::chrono::milliseconds timeout, FairringBackend::MakeStock makeStock) {
    auto shared = std::make_shared<const FairringBackend::MakeStock>(std::move(makeStock));
    return FairringBackend::make(store, {options, std::move(shared)}, timeout);
  };
  module.def("make_backend", make, py::arg("store"), py::arg("options"), py::arg("timeout"), py::arg("make_stock"),
             py::call_guard<py::gil_scoped_release>());
  module.def("epoll_descriptors", &fairring::epollDescriptors);
  module.def("end_all", &FairringBackend::endAll, py::call_guard<py::gil_scoped_release>());
}
