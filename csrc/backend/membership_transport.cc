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

namespace {

// Has the offer's memory promised. Devices themselves are tried last, by all ranks: a refusal would otherwise end the
// group when it connects.
template <class Try>
void take(const RdmaOffer& offer, int peers, RankFacts& facts, LockableMemory::Promise& promise, const Try& obstacle) {
  facts.rdmaFabric = offer.fabric;
  facts.rdmaObstacle = offer.obstacle;
  if (!facts.rdmaObstacle.empty()) return;
  try {
    promise = LockableMemory::ofThisProcess().promise(offer.lockedBytes, rdmaUse(peers));
    facts.rdmaObstacle = obstacle();
  } catch (const Failure& refusal) {
    facts.rdmaObstacle = refusal.what();
  }
  if (!facts.rdmaObstacle.empty()) promise.giveBack();
}

}  // namespace

RankFacts Membership::factsHere(const MembershipOptions& options, Runtime& runtime, LockableMemory::Promise& promise) {
  promise.giveBack();
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
    const RdmaOffer offer = verbsOffer(mostPeers, Pipeline::allStagingBytes(options.totalMemoryBytes));
    take(offer, mostPeers, facts, promise, [&] { return verbsObstacle(offer); });
  } else {
    const RdmaOffer offer = rdmaOffer(mostPeers);
    take(offer, mostPeers, facts, promise, [] { return tensorPipeObstacle("ibv"); });
  }
  return facts;
}

TransportChoice Membership::transportFor(const std::vector<RankFacts>& facts) const {
  TransportChoice choice = chooseTransport(options_.transport, facts, transports());
  choice.transports.rail.lanes = options_.lanes;
  choice.transports.site.lanes = options_.siteLanes;
  return choice;
}

bool Membership::usesRdma(const std::vector<RankFacts>& facts) const {
  const Transports chosen = transportFor(facts).transports;
  return chosen.rail.isRdma || chosen.site.isRdma;
}

// Writing may block.
void Membership::warn(const std::string& text) {
  completion().post([text] { TORCH_WARN("fairring: ", text); });
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
