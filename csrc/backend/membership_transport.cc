// Membership's part in choosing the transport between machines: it publishes with its facts the RDMA that this rank
// could offer, and derives the transport from all ranks' facts.
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include "backend/membership.h"
#include "backend/transports.h"
#include "engine/pipeline.h"
#include "group/transport_choice.h"
#include "transport/rdma_offer.h"
#include "transport/tensorpipe_transport.h"
#include "transport/verbs_hardware.h"

namespace fairring {

// Devices themselves are tried last, by all ranks: a refusal would otherwise end the group when it connects.
RankFacts Membership::factsHere(const MembershipOptions& options, Runtime& runtime) {
  RankFacts facts = options.facts;
  facts.addresses = runtime.interfaces().rail;
  facts.siteAddresses = runtime.interfaces().site;
  facts.port = runtime.acceptor().port();
  const auto& [rail, site] = options.transport;
  const std::string automatic = rail == "auto" ? automaticRdma(transports()).name : "";
  const auto wants = [&](const std::string& name) { return rail == name || site == name || automatic == name; };
  if (!wants("verbs") && !wants("ibv")) return facts;
  if (options.reconfigurable) {
    facts.rdmaObstacle = "the group's members change, and what of RDMA a rank needs depends on how many they are";
    return facts;
  }
  const int mostPeers = options.size - 1;
  if (wants("verbs")) {
    const std::uint64_t staging = options.totalMemoryBytes + Pipeline::expressBytesBeside(options.totalMemoryBytes);
    facts.rdmaFabric = verbsOffer(mostPeers, staging).fabric;
    facts.rdmaObstacle = verbsObstacle(mostPeers, staging);
  }
  if (wants("ibv") && facts.rdmaObstacle.empty()) {
    facts.rdmaFabric = rdmaOffer(mostPeers).fabric;
    facts.rdmaObstacle = tensorPipeObstacle("ibv", mostPeers);
  }
  return facts;
}

TransportChoice Membership::transportFor(const std::vector<RankFacts>& facts) const {
  TransportChoice choice = chooseTransport(options_.transport, facts, transports());
  choice.transports.rail.lanes = options_.lanes;
  choice.transports.site.lanes = options_.siteLanes;
  return choice;
}

// A warning if RDMA is present and not used, and a line at a more verbose level if it is absent.
void Membership::tellTransport(const std::vector<RankFacts>& facts) const {
  const TransportChoice choice = transportFor(facts);
  if (choice.rdmaRefused.empty() || options_.rank != 0) return;
  if (choice.rdmaIsThere) {
    TORCH_WARN_ONCE("fairring: TCP between machines, not RDMA: ", choice.rdmaRefused);
  } else {
    LOG(INFO) << "fairring: TCP between machines, not RDMA: " << choice.rdmaRefused;
  }
}

}  // namespace fairring
