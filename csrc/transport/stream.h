// What a lane or a control connection speaks over: a socket that has passed the challenge, plain or under TLS. Its
// calls are the system's, and so are their answers; only those of a plain one carry descriptors. TLS may hold bytes on
// both sides of the calls: what was taken and not sent waits for flush(), what was read and not received is announced
// by no event. One owner, on its loop only.
#pragma once

#include <sys/socket.h>

#include <memory>

#include "base/descriptor.h"
#include "transport/tls_stream.h"

namespace fairring {

class Stream {
 public:
  Stream() = default;
  Stream(Descriptor socket, std::unique_ptr<TlsStream> tls = nullptr)
      : tls_(std::move(tls)), socket_(std::move(socket)) {}

  const Descriptor& socket() const { return socket_; }

  ssize_t send(const msghdr& message) {
    return tls_ ? tls_->send({message.msg_iov, message.msg_iovlen}) : ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  }
  ssize_t receive(msghdr& message) {
    return tls_ ? unseal(message) : ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  }
  Error failure(const char* call) const { return tls_ ? tls_->failure() : systemError(call); }  // right after one

  void flush() {
    if (tls_) tls_->flush();
  }
  bool hasUnsent() const { return tls_ && tls_->hasUnsent(); }
  bool hasUnread() const { return tls_ && tls_->hasUnread(); }
  void close() {
    if (tls_) tls_->close();
    tls_.reset();
    socket_.reset();
  }

 private:
  ssize_t unseal(msghdr& message) {
    message.msg_controllen = 0;
    return tls_->receive({message.msg_iov, message.msg_iovlen});
  }

  std::unique_ptr<TlsStream> tls_;
  Descriptor socket_;
};

}  // namespace fairring
