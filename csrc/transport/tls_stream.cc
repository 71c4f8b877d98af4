#include "transport/tls_stream.h"

#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace fairring {

namespace {

constexpr std::size_t kBatchBytes = 8 * TlsStream::kRecordBytes;  // encrypted before the socket is asked to take them
constexpr std::string_view kExporter = "EXPORTER-fairring";
constexpr int kFirstAlert = 1000;  // of OpenSSL's reasons: from here on, alerts of the other side

using Records = std::vector<std::byte>;

int appendRecord(BIO* sink, const char* bytes, std::size_t count, std::size_t* written) {
  auto* records = static_cast<Records*>(BIO_get_data(sink));
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  records->insert(records->end(), begin, begin + count);
  *written = count;
  return 1;
}

long controlSink(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* newSinkMethod() {
  BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "records");
  check(method != nullptr, ErrorKind::System, "libcrypto: no memory");
  BIO_meth_set_write_ex(method, appendRecord);
  BIO_meth_set_ctrl(method, controlSink);
  return method;
}

BIO* newSink(Records* into) {
  static BIO_METHOD* const method = newSinkMethod();
  BIO* sink = BIO_new(method);
  check(sink != nullptr, ErrorKind::System, "libcrypto: no memory");
  BIO_set_data(sink, into);
  BIO_set_init(sink, 1);
  return sink;
}

// The first error of OpenSSL on this thread since its list was cleared.
Error firstError() {
  const unsigned long code = ERR_peek_error();
  const char* known = ERR_reason_error_string(code);
  const std::string reason = known != nullptr ? known : concat("error ", code);
  if (ERR_GET_REASON(code) >= kFirstAlert) {
    return makeError(ErrorKind::Configuration, "TLS: the other side refuses this rank: ", reason,
                     "; FAIRRING_TLS_CA there and FAIRRING_TLS_CERTIFICATE here don't go together");
  }
  return makeError(ErrorKind::Connection, "TLS: ", reason);
}

// Why the handshake has failed: this side's verdict on the certificate, if it is bad, or OpenSSL's first error.
Error handshakeError(const SSL* ssl) {
  const long verdict = SSL_get_verify_result(ssl);
  if (verdict == X509_V_OK) return firstError();
  return makeError(ErrorKind::Configuration,
                   "TLS: the other side's certificate is not accepted here: ", X509_verify_cert_error_string(verdict),
                   "; FAIRRING_TLS_CERTIFICATE there and FAIRRING_TLS_CA here don't go together");
}

bool isEnd(int what) {
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING
  if (what == SSL_ERROR_SSL) return ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
#endif
  return what == SSL_ERROR_ZERO_RETURN || (what == SSL_ERROR_SYSCALL && errno == 0);
}

}  // namespace

TlsStream::TlsStream(SSL_CTX* context, Side side, int socket, std::uint64_t recordsPerKey)
    : socket_(socket), ssl_(SSL_new(context)), recordsPerKey_(recordsPerKey) {
  BIO* source = BIO_new_socket(socket, BIO_NOCLOSE);
  if (!ssl_ || source == nullptr) {
    BIO_free(source);
    throw Failure(makeError(ErrorKind::System, "libssl: no memory"));
  }
  SSL_set0_rbio(ssl_.get(), source);
  SSL_set0_wbio(ssl_.get(), newSink(&records_));
  if (side == Side::Connector) {
    SSL_set_connect_state(ssl_.get());
  } else {
    SSL_set_accept_state(ssl_.get());
  }
}

Error TlsStream::handshake() {
  assert(!open_);
  ERR_clear_error();
  const int done = SSL_do_handshake(ssl_.get());
  const int what = SSL_get_error(ssl_.get(), done);
  Error error = what == SSL_ERROR_SSL ? handshakeError(ssl_.get()) : Error();
  flush();  // an alert, too
  // An alert may meet a connection that is closed already, and only this error tells the cause.
  if (error) return error;
  if (errno_ != 0) return error_;
  if (done == 1) {
    open_ = true;
    unread_ = SSL_has_pending(ssl_.get()) == 1;
    return {};
  }
  if (what == SSL_ERROR_WANT_READ) return {};
  return makeError(ErrorKind::Connection, "the connection was closed during TLS's handshake");
}

std::array<std::byte, 32> TlsStream::exporter() const {
  std::array<std::byte, 32> key;
  const int done = SSL_export_keying_material(ssl_.get(), reinterpret_cast<unsigned char*>(key.data()), key.size(),
                                              kExporter.data(), kExporter.size(), nullptr, 0, 0);
  check(done == 1, ErrorKind::System, "libssl exports no key");
  return key;
}

ssize_t TlsStream::send(std::span<const iovec> pieces) {
  assert(open_);
  flush();
  if (errno_ != 0 || hasUnsent()) {
    errno = errno_ != 0 ? errno_ : EAGAIN;
    return -1;
  }
  std::size_t taken = 0;
  std::size_t gathered = 0;
  bool room = true;  // once there is none the rest waits: sending a later piece would leave a gap
  for (const iovec& piece : pieces) {
    std::span rest(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
    while (room && !rest.empty()) {
      room = hasRoom();
      if (!room) break;
      const auto next = rest.first(std::min(rest.size(), kRecordBytes - gathered));
      if (next.size() == kRecordBytes) {  // straight from its place
        seal(next);
      } else {  // joined with data before or after it
        std::memcpy(gathered_.data() + gathered, next.data(), next.size());
        gathered += next.size();
        if (gathered == kRecordBytes) seal(std::span(gathered_).first(std::exchange(gathered, 0)));
      }
      rest = rest.subspan(next.size());
      taken += next.size();
    }
  }
  if (gathered > 0) seal(std::span(gathered_).first(gathered));
  flush();
  return static_cast<ssize_t>(taken);
}

bool TlsStream::hasRoom() {
  if (errno_ != 0) return false;
  if (records_.size() < kBatchBytes) return true;
  flush();
  return errno_ == 0 && !hasUnsent();
}

void TlsStream::seal(std::span<const std::byte> record) {
  if (errno_ != 0) return;
  ERR_clear_error();
  if (++recordsOfKey_ > recordsPerKey_) {
    recordsOfKey_ = 1;
    SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
  }
  std::size_t written = 0;
  if (SSL_write_ex(ssl_.get(), record.data(), record.size(), &written) != 1) fail(EPROTO, firstError());
}

void TlsStream::flush() {
  while (hasUnsent()) {
    const ssize_t sent = ::send(socket_, records_.data() + sentBytes_, records_.size() - sentBytes_, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent < 0) return fail(errno, makeError(ErrorKind::Connection, systemError("send").text()));
    sentBytes_ += static_cast<std::size_t>(sent);
  }
  records_.clear();
  sentBytes_ = 0;
}

ssize_t TlsStream::receive(std::span<const iovec> pieces) {
  assert(open_);
  std::size_t received = 0;
  for (const iovec& piece : pieces) {
    for (std::size_t filled = 0; filled < piece.iov_len;) {
      std::size_t count = 0;
      if (errno_ != 0 || over_) return noMore(received);
      ERR_clear_error();
      if (SSL_read_ex(ssl_.get(), static_cast<std::byte*>(piece.iov_base) + filled, piece.iov_len - filled, &count) !=
          1) {
        return noMore(received);
      }
      filled += count;
      received += count;
    }
  }
  unread_ = SSL_has_pending(ssl_.get()) == 1;
  return static_cast<ssize_t>(received);
}

// If nothing more can be read for now, or at all. Received data goes first, the end is reported after it.
ssize_t TlsStream::noMore(std::size_t received) {
  if (errno_ == 0 && !over_) {
    const int code = errno;
    const int what = SSL_get_error(ssl_.get(), 0);
    unread_ = false;
    if (what == SSL_ERROR_WANT_READ) {
      errno = EAGAIN;
      return received > 0 ? static_cast<ssize_t>(received) : -1;
    }
    over_ = isEnd(what);
    if (!over_ && what == SSL_ERROR_SYSCALL) fail(code, makeError(ErrorKind::Connection, systemError("read").text()));
    if (!over_ && what != SSL_ERROR_SYSCALL) fail(EPROTO, firstError());
  }
  unread_ = received > 0;
  if (received > 0) return static_cast<ssize_t>(received);
  errno = errno_;
  return over_ ? 0 : -1;
}

Error TlsStream::failure() const {
  return error_ ? error_ : makeError(ErrorKind::Connection, "TLS: the connection is of no use any more");
}

void TlsStream::close() {
  if (errno_ != 0 || !open_) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  flush();
}

void TlsStream::fail(int code, const Error& error) {
  errno_ = code;
  error_ = error;
  records_.clear();
  sentBytes_ = 0;
}

}  // namespace fairring
