#include "exchange/handshake.h"

#include <sys/epoll.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <system_error>

namespace fairring {

Handshake::Handshake(Loop& loop, Descriptor socket, Hello hello, std::chrono::milliseconds timeout, Finished finished)
    : loop_(loop), socket_(std::move(socket)), hello_(std::move(hello)), finished_(std::move(finished)) {
  unsent_ = hello_.takeOutput();
  loop_.watch(socket_.get(), EPOLLIN | EPOLLOUT, [this](std::uint32_t events) { onReady(events); });
  timer_ = loop_.at(Loop::Clock::now() + timeout, [this, timeout] {
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
    if (code != 0) return finish(makeError(ErrorKind::System, "connect: ", std::generic_category().message(code)));
    connected_ = true;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && state_ == Hello::State::Wants) return readMessage();
  writeOutput();
}

void Handshake::readMessage() {
  std::array<std::byte, 128> buffer;
  assert(hello_.wanted() <= buffer.size());
  const ssize_t got = ::recv(socket_.get(), buffer.data(), hello_.wanted(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return finish(makeError(ErrorKind::Connection, systemError("recv").text(), " during the challenge"));
  if (got == 0) {
    return finish(makeError(ErrorKind::Connection, "the connection was closed during the challenge: ",
                            "the other side does not know this group, or has another secret"));
  }
  spoke_ = true;
  state_ = hello_.feed(std::span(buffer).first(static_cast<std::size_t>(got)));
  if (state_ == Hello::State::Refused) {
    return finish(makeError(ErrorKind::Connection, "the other side did not pass the keyed challenge"));
  }
  const auto output = hello_.takeOutput();
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
  if (unsent_.empty() && state_ == Hello::State::Done) return finish({});
  loop_.rewatch(socket_.get(), unsent_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void Handshake::finish(const Error& error) {
  loop_.unwatch(socket_.get());
  loop_.cancel(timer_);
  const Finished finished = std::move(finished_);  // the call may destroy this object
  finished(error);
}

}  // namespace fairring
