#include "backend/inspection.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/fairring_backend.h"
#include "backend/shown_errors.h"
#include "backend/transports.h"
#include "exchange/site_format.h"
#include "group/transport_choice.h"
#include "plan/cost_rows.h"
#include "transport/rdma_devices.h"
#include "transport/rdma_offer.h"
#include "transport/rdma_ports.h"

namespace fairring {

namespace py = pybind11;

namespace {

// The answer of a group of ours, for which it may wait: so it is asked without the GIL. Nothing for other backends.
template <class Asked>
auto askWithoutGil(const c10::intrusive_ptr<c10d::Backend>& backend, const Asked& asked)
    -> std::optional<decltype(asked(std::declval<FairringBackend&>()))> {
  const auto ours = c10::dynamic_intrusive_pointer_cast<FairringBackend>(backend);
  if (!ours) return std::nullopt;
  const py::gil_scoped_release unlocked;
  return asked(*ours);
}

// Likewise of its membership; a default one where it has none.
template <class Asked>
auto askMembership(const c10::intrusive_ptr<c10d::Backend>& backend, const Asked& asked) {
  return askWithoutGil(backend, [&](FairringBackend& ours) {
    const std::shared_ptr<Membership> membership = ours.inspected();
    return membership ? asked(*membership) : decltype(asked(*membership))();
  });
}

// Of the bytes of Float32, by what many whole blocks take.
double shareOf(const std::string& format) {
  if (format.empty()) return 1;
  const SiteFormat* const known = siteFormat(format);
  TORCH_CHECK_WITH(ValueError, known != nullptr, unknownSiteFormat(format));
  return static_cast<double>(known->bytes(known->blockElements)) /
         static_cast<double>(known->blockElements * sizeof(float));
}

}  // namespace

std::vector<CostRow> costRowsOf(const std::vector<RowNumbers>& rows) {
  std::vector<CostRow> made;
  made.reserve(rows.size());
  for (const RowNumbers& row : rows) made.push_back({row[0], row[1], row[2], row[3]});
  return made;
}

std::vector<RowNumbers> builtInRowNumbers(const std::string& rail, const std::string& site) {
  std::vector<RowNumbers> rows;
  for (const CostRow& row : builtInRows(rail, site)) {
    rows.push_back({row.latencySeconds, row.perMessageSeconds, row.bytesPerSecond, row.summedBytesPerSecond});
  }
  return rows;
}

py::object inspect(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto asked = askWithoutGil(backend, [](FairringBackend& ours) {
    std::pair<std::vector<RankFacts>, TransportChoice> known;
    auto& [facts, choice] = known;
    if (const auto membership = ours.inspected()) {
      facts = membership->factsOfAll(ours.timeout());
      choice = membership->transportFor(facts);
    }
    return known;
  });
  if (!asked || asked->first.empty()) return py::none();
  const auto& [facts, choice] = *asked;
  py::list ranks;
  for (const RankFacts& one : facts) {
    py::dict rank;
    rank["machine"] = one.place.machine;
    rank["site"] = one.place.site;
    rank["hostname"] = one.hostname;
    rank["addresses"] = one.addresses;
    rank["site_addresses"] = one.siteAddresses;
    rank["interfaces_by"] = one.interfacesBy;
    rank["port"] = one.port;
    rank["rdma_fabric"] = one.rdmaFabric;
    rank["rdma_obstacle"] = one.rdmaObstacle;
    ranks.append(rank);
  }
  py::dict found;
  found["ranks"] = ranks;
  found["transports"] = py::make_tuple(choice.transports.rail.name, choice.transports.site.name);
  found["rdma_refused"] = choice.rdmaRefused;
  return found;
}

py::object traffic(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto moved = askMembership(backend, [](const Membership& membership) {
    const auto group = membership.groupIfMade();
    return group ? group->traffic() : TrafficByLevel();
  });
  if (!moved) return py::none();
  py::dict levels;
  for (const auto& [level, counted] : *moved) {
    py::dict entry;
    entry["messages"] = counted.messages;
    entry["bytes"] = counted.bytes;
    entry["sends"] = counted.sends;
    entry["rounded"] = counted.rounding.magnitude;
    entry["lost"] = counted.rounding.lost;
    levels[py::int_(level)] = entry;
  }
  return levels;
}

py::object trace(const c10::intrusive_ptr<c10d::Backend>& backend, std::size_t calls) {
  const auto text = askMembership(backend, [calls](const Membership& one) { return one.trace(calls); });
  return text ? py::object(py::str(*text)) : py::none();
}

py::object deviceWay(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto words = askMembership(backend, [](const Membership& one) { return one.deviceWay(); });
  return words.value_or("").empty() ? py::object(py::none()) : py::cast(*words);
}

py::object firstError(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const Error error = askWithoutGil(backend, [](FairringBackend& ours) { return ours.firstError(); }).value_or(Error());
  if (error) ShownErrors::all().add(error);
  return error ? py::cast(error.text()) : py::none();
}

py::object shownError(const std::string& text) {
  const std::optional<Error> error = ShownErrors::all().find(text);
  return error ? py::object(py::make_tuple(name(error->kind()), error->ranks())) : py::none();
}

py::object mark(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto mark = askWithoutGil(backend, [](FairringBackend& ours) { return ours.mark(); });
  return mark ? py::cast(*mark) : py::none();
}

py::object lastComplete(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto ours = c10::dynamic_intrusive_pointer_cast<FairringBackend>(backend);
  const auto last = ours ? ours->lastComplete() : std::nullopt;
  return last ? py::cast(std::pair(last->here, last->ofRank)) : py::none();
}

std::vector<std::string> transportNames() {
  std::vector<std::string> names;
  for (const Transport& one : transports()) names.push_back(one.name);
  return names;
}

namespace {

bool isVerbs(const std::string& transport) {
  return (transport == "auto" ? automaticRdma(transports()).name : transport) == "verbs";
}

// TensorPipe takes port 1.
std::vector<RdmaPort> portsFor(const std::string& transport) {
  if (isVerbs(transport)) return rdmaPorts();
  std::vector<RdmaPort> ports;
  for (const RdmaDevice& one : rdmaDevices()) {
    ports.push_back({.device = one.name,
                     .linkLayer = one.linkLayer,
                     .netdev = one.netdev,
                     .rate = one.rate,
                     .gid = one.gid,
                     .obstacle = one.obstacle});
  }
  return ports;
}

}  // namespace

py::list rdmaDevicesHere(const std::string& transport) {
  py::list devices;
  for (const RdmaPort& one : portsFor(transport)) {
    py::dict device;
    device["name"] = one.device;
    device["port"] = std::to_string(one.number);
    device["link_layer"] = one.linkLayer;
    device["interface"] = one.netdev;
    device["rate"] = one.rate;
    device["gid"] = one.gid;
    device["obstacle"] = one.obstacle;
    devices.append(device);
  }
  return devices;
}

std::string rdmaObstacleHere(const std::string& transport, int peers, std::uint64_t totalMemoryBytes) {
  if (!isVerbs(transport)) return rdmaOffer(peers).obstacle;
  return verbsOffer(peers, Pipeline::allStagingBytes(totalMemoryBytes)).obstacle;
}

std::vector<Place> placesOf(const PlanQuestion& question) {
  std::vector<Place> places;
  places.reserve(question.machines.size());
  for (std::size_t rank = 0; rank < question.machines.size(); ++rank) {
    places.push_back({question.machines[rank], question.sites.empty() ? "" : question.sites.at(rank)});
  }
  return places;
}

GroupingFrom groupingOf(const PlanQuestion& question) {
  return question.flat ? GroupingFrom{.groups = GroupingFrom::kNever} : GroupingFrom{};
}

// Plans are chosen by the bytes of the tensor. A format shortens the way between sites by what it leaves out.
py::list forecast(const PlanQuestion& question) {
  const Topology topology(placesOf(question), groupingOf(question));
  std::vector<CostRow> rows = costRowsOf(question.rows);
  const Planner planner(topology, {question.totalMemoryBytes, question.sliceBytes, rows});
  const double share = topology.sites() > 1 ? shareOf(question.siteFormat) : 1;
  if (topology.sites() > 1) rows[Topology::kSiteLevel].bytesPerSecond /= share;
  const Planner crossing(topology, {question.totalMemoryBytes, question.sliceBytes, rows});
  py::list plans;
  for (const Forecast& one : planner.forecast(question.bytes)) {
    py::list levels;
    for (const int level : planner.levels()) {
      const StepWork& work = one.levels[static_cast<std::size_t>(level)];
      py::dict entry;
      entry["level"] = level;
      entry["messages"] = work.messages;
      const bool isShared = level == Topology::kSiteLevel && topology.sites() > 1;
      entry["bytes"] = isShared ? static_cast<std::uint64_t>(static_cast<double>(work.bytes) * share) : work.bytes;
      entry["summed_bytes"] = work.summedBytes;
      levels.append(entry);
    }
    py::dict plan;
    plan["steps"] = describe(one.plan);
    plan["slice_bytes"] = one.sliceBytes;
    plan["slices"] = one.slices;
    plan["staging_bytes"] = one.stagingBytes;
    plan["seconds"] = share == 1 ? one.seconds : crossing.predictSeconds(one.plan, question.bytes, one.sliceBytes);
    plan["levels"] = levels;
    plans.append(plan);
  }
  return plans;
}

}  // namespace fairring
