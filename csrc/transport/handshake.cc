#include "transport/handshake.h"

#include <openssl/crypto.h>
#include <sys/epoll.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <system_error>

namespace fairring {

Handshake::Handshake(Loop& loop, Descriptor socket, Terms terms, Finished finished)
    : loop_(loop),
      socket_(std::move(socket)),
      challenge_(std::move(terms.challenge)),
      side_(terms.side),
      tlsOf_(std::move(terms.tls)),
      finished_(std::move(finished)) {
  unsent_ = challenge_.takeOutput();
  loop_.watch(socket_.get(), EPOLLIN | EPOLLOUT, [this](std::uint32_t events) { onReady(events); });
  timer_ = loop_.at(loop_.now() + terms.timeout, [this, timeout = terms.timeout] {
    finish(makeError(ErrorKind::Timeout, "no answer to our greeting within ", timeout.count(), " ms"));
  });
}

Handshake::~Handshake() {
  if (socket_) loop_.unwatch(socket_.get());
  loop_.cancel(timer_);
}

void Handshake::onReady(std::uint32_t events) {
  if (!connected_) {
    const int code = finishConnect(socket_);
    unreachable_ = meansUnreachable(code);
    const ErrorKind kind = code == ECONNREFUSED ? ErrorKind::PeerDied : ErrorKind::System;
    if (code != 0) return finish(makeError(kind, "connect: ", std::generic_category().message(code)));
    connected_ = true;
  }
  if (tls_) return secure();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && state_ == Challenge::State::Wants) return readMessage();
  writeOutput();
}

void Handshake::readMessage() {
  std::array<std::byte, 128> buffer;
  assert(challenge_.wanted() <= buffer.size());
  const ssize_t got = ::recv(socket_.get(), buffer.data(), challenge_.wanted(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return finish(makeError(ErrorKind::Connection, systemError("recv").text(), " during the challenge"));
  if (got == 0) {
    return finish(makeError(ErrorKind::Connection, "the connection was closed during the challenge: ",
                            "the other side does not know this group, or has another secret"));
  }
  spoke_ = true;
  state_ = challenge_.feed(std::span(buffer).first(static_cast<std::size_t>(got)));
  if (state_ == Challenge::State::Refused) {
    return finish(makeError(ErrorKind::Connection, "the other side did not pass the keyed challenge"));
  }
  const auto output = challenge_.takeOutput();
  unsent_.insert(unsent_.end(), output.begin(), output.end());
  writeOutput();
}

void Handshake::writeOutput() {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (sent < 0) return finish(makeError(ErrorKind::Connection, systemError("send").text(), " during the challenge"));
    unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
  }
  if (unsent_.empty() && state_ == Challenge::State::Done) return openTls();
  loop_.rewatch(socket_.get(), unsent_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

// Inside the machine TLS would hide nothing: a process that can read the socket may read the ranks' memory anyway.
void Handshake::openTls() {
  const auto tls = isLocal(socket_) ? nullptr : tlsOf_(challenge_.greeting());
  if (!tls) return finish({});
  tls_ = tls->stream(side_, socket_.get());
  secure();
}

void Handshake::secure() {
  if (!tls_->isOpen()) {
    if (const Error error = tls_->handshake()) return finish(error);
    if (tls_->isOpen()) binding_ = challenge_.channelBinding(tls_->exporter());
  }
  if (tls_->isOpen()) {
    if (const Error error = sendBinding()) return finish(error);
    if (const Error error = receiveBinding()) return finish(error);
  }
  const bool said = saidBytes_ == binding_.mine.size() && !tls_->hasUnsent();
  if (said && heardBytes_ == heard_.size()) return finish({});
  const std::uint32_t reading = heardBytes_ < heard_.size() ? EPOLLIN : 0U;
  loop_.rewatch(socket_.get(), tls_->hasUnsent() ? reading | EPOLLOUT : reading);
}

Error Handshake::sendBinding() {
  tls_->flush();
  if (saidBytes_ == binding_.mine.size() || tls_->hasUnsent()) return {};
  const iovec words{binding_.mine.data() + saidBytes_, binding_.mine.size() - saidBytes_};
  const ssize_t sent = tls_->send({&words, 1});
  if (sent < 0) return tls_->failure();
  saidBytes_ += static_cast<std::size_t>(sent);
  return {};
}

Error Handshake::receiveBinding() {
  if (heardBytes_ == heard_.size()) return {};
  const iovec room{heard_.data() + heardBytes_, heard_.size() - heardBytes_};
  const ssize_t got = tls_->receive({&room, 1});
  if (got < 0 && errno == EAGAIN) return {};
  if (got < 0) return tls_->failure();
  if (got == 0) return makeError(ErrorKind::Connection, "the connection was closed during TLS's handshake");
  heardBytes_ += static_cast<std::size_t>(got);
  if (heardBytes_ < heard_.size() || CRYPTO_memcmp(heard_.data(), binding_.theirs.data(), heard_.size()) == 0)
    return {};
  state_ = Challenge::State::Refused;
  return makeError(ErrorKind::Connection, "the other end of the TLS connection is not who passed the challenge");
}

void Handshake::finish(const Error& error) {
  loop_.unwatch(socket_.get());
  loop_.cancel(timer_);
  const Finished finished = std::move(finished_);  // the call may destroy this object
  finished(error);
}

}  // namespace fairring
