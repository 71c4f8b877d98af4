// The byte stream under a lane or a control connection: a socket that has passed the challenge, plain or under TLS. Its
// calls and their results are the system's. Only a plain one carries descriptors. TLS may hold bytes in both
// directions: bytes that were taken but not sent wait for flush(), and no event announces bytes that were read but not
// received. One owner, on its loop; of a plain one, a
// helper may send while the loop receives.
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
  Error failure(const char* call) const { return tls_ ? tls_->failure() : systemError(call); }  // after a failed call

  void flush() {
    if (tls_) tls_->flush();
  }
  bool isSealed() const { return tls_ != nullptr; }
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
