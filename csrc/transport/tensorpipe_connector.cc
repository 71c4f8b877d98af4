#include "transport/tensorpipe_connector.h"

#include <cassert>
#include <optional>

#include "base/fields.h"

namespace fairring {

namespace {

// The contact of a rank's listener.
struct Contact {
  std::string nonce;
  std::string domain;  // of TensorPipe's transport
  std::string url;

  static void fields(auto& row, auto& contact) { row(contact.nonce, contact.domain, contact.url); }
};

struct Introduction {
  int from = -1;
  std::string proof;

  static void fields(auto& row, auto& introduction) { row(introduction.from, introduction.proof); }
};

// Compares in a time that does not reveal where they differ.
bool sameProof(const std::string& a, const std::string& b) {
  static const Secret once = randomSecret();
  return keyedName(once, "compare", a) == keyedName(once, "compare", b);
}

}  // namespace

TensorPipeConnector::TensorPipeConnector(TensorPipeContext& context, const ChannelSettings& settings, Events events)
    : context_(context),
      rank_(settings.rank),
      secret_(settings.secret),
      events_(std::move(events)),
      nonce_(keyedName(randomSecret(), "tensorpipe", "nonce")),
      missing_(settings.peers.begin(), settings.peers.end()) {
  if (missing_.empty() || *missing_.rbegin() < rank_) return;
  listener_ = context_.listen(settings.bindAddress);
  contact_ = toText(Contact{nonce_, context_.domain(), context_.urlOf(*listener_)});
  accept();
}

void TensorPipeConnector::accept() {
  listener_->accept(context_.onLoop([this](const auto& error, const auto& pipe) { onAccepted(error, pipe); }));
}

void TensorPipeConnector::onAccepted(const tensorpipe::Error& error, const TensorPipe& pipe) {
  if (!listener_) return;  // closed in the meantime: no higher peer is missing
  if (error) {
    const int peer = *missing_.rbegin();
    return fail(peer, makeError(ErrorKind::Connection, "rank ", rank_, " can't listen for rank ", peer,
                                " by TensorPipe any more: ", error.what()));
  }
  const std::uint64_t id = nextStranger_++;
  strangers_[id] = pipe;
  pipe->readDescriptor(
      context_.onLoop([this, id](const auto& failure, const auto& greeting) { onGreeting(id, failure, greeting); }));
  accept();
}

// A stranger that does not prove itself loses its pipe, and nothing else happens.
void TensorPipeConnector::onGreeting(std::uint64_t id, const tensorpipe::Error& error,
                                     const tensorpipe::Descriptor& greeting) {
  const auto stranger = strangers_.extract(id);
  if (!stranger || error || !greeting.payloads.empty() || !greeting.tensors.empty()) return;
  const std::optional<Introduction> said = fromText<Introduction>(greeting.metadata);
  if (!said || said->from <= rank_ || !missing_.contains(said->from)) return;
  const int from = said->from;
  if (!sameProof(said->proof, proof("connector", from, rank_, nonce_))) return;
  tensorpipe::Message answer;
  answer.metadata = proof("listener", from, rank_, nonce_);
  // If this fails, so does the wait for the peer's next message.
  stranger.mapped()->read({}, [](const tensorpipe::Error&) {});
  stranger.mapped()->write(std::move(answer), [](const tensorpipe::Error&) {});
  link(from, stranger.mapped());
}

void TensorPipeConnector::connect(int peer, const std::string& contact) {
  assert(context_.loop().isCurrent());
  if (!missing_.contains(peer) || connecting_.contains(peer)) return;
  const Contact there = fromText<Contact>(contact).value_or(Contact());
  std::string obstacle;
  if (!context_.reaches(there.domain)) {
    obstacle = concat("its transport reaches \"", there.domain, "\", ours ", context_.domain(),
                      "; all ranks need the same transport, and shm needs them in one network namespace");
  } else {
    try {
      connecting_[peer] = context_.connect(there.url);
      return greet(peer, there.nonce, connecting_[peer]);
    } catch (const std::exception& refusal) {  // an address that TensorPipe can't read
      obstacle = refusal.what();
    }
  }
  const Error error = makeError(ErrorKind::Connection, "rank ", rank_, " can't reach rank ", peer,
                                " by TensorPipe at \"", there.url, "\": ", obstacle);
  context_.loop().post([this, open = context_.isOpen(), peer, error] {
    if (*open) fail(peer, error);
  });
}

void TensorPipeConnector::greet(int peer, const std::string& nonce, const TensorPipe& pipe) {
  tensorpipe::Message greeting;
  greeting.metadata = toText(Introduction{rank_, proof("connector", rank_, peer, nonce)});
  pipe->write(std::move(greeting), [](const tensorpipe::Error&) {});  // if this fails, so does the answer
  pipe->readDescriptor(context_.onLoop(
      [this, peer, nonce](const auto& error, const auto& answer) { onAnswer(peer, nonce, error, answer); }));
}

void TensorPipeConnector::onAnswer(int peer, const std::string& nonce, const tensorpipe::Error& error,
                                   const tensorpipe::Descriptor& answer) {
  const auto connected = connecting_.extract(peer);
  if (error) {
    return fail(peer, makeError(ErrorKind::Connection, "rank ", rank_, " got no answer from rank ", peer,
                                " by TensorPipe (it gives none to those who have another secret): ", error.what()));
  }
  const bool plain = answer.payloads.empty() && answer.tensors.empty();
  if (!plain || !sameProof(answer.metadata, proof("listener", rank_, peer, nonce))) {
    return fail(peer, makeError(ErrorKind::Connection, "what answers rank ", rank_, " by TensorPipe in place of rank ",
                                peer, " does not know the group's secret"));
  }
  connected.mapped()->read({}, [](const tensorpipe::Error&) {});
  link(peer, connected.mapped());
}

void TensorPipeConnector::link(int peer, const TensorPipe& pipe) {
  missing_.erase(peer);
  // The higher peers' pipes are complete, because their first messages are here: they don't need the listener any more.
  if (listener_ && (missing_.empty() || *missing_.rbegin() < rank_)) {
    listener_.reset();
    strangers_.clear();
  }
  events_.linked(peer, pipe);
}

void TensorPipeConnector::fail(int peer, const Error& error) {
  missing_.erase(peer);
  connecting_.erase(peer);
  events_.failed(peer, error);
}

std::string TensorPipeConnector::proof(const char* role, int from, int to, const std::string& nonce) const {
  return keyedName(secret_, concat("tensorpipe ", role), concat(from, "-", to, "-", nonce));
}

}  // namespace fairring
