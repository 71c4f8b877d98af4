// One connection under TLS, on a socket that it does not own. Bytes in, records out: data to be sent is encrypted at
// once and kept here until the socket takes it, so data that send() has accepted is final.
// Records are made large: small pieces are put together, and several records leave in one system call. The keys of a
// direction are renewed long before their cipher's limit.
// Never blocks. On one loop only.
#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"

namespace fairring {

// The deleter of a handle of C, for std::unique_ptr.
template <auto Destroy>
struct Destroyer {
  void operator()(auto* handle) const noexcept { Destroy(handle); }
};

class TlsStream {
 public:
  enum class Side { Connector, Acceptor };
  static constexpr std::size_t kRecordBytes = 16 << 10;
  // The most records that one key encrypts: 2^24.5 full records of AES-GCM are safe (RFC 8446, 5.5).
  static constexpr std::uint64_t kRecordsPerKey = 1 << 23;

  TlsStream(SSL_CTX* context, Side side, int socket, std::uint64_t recordsPerKey);
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  // Continues the handshake as far as the socket lets it. An error of kind Configuration: one side does not accept the
  // other's certificate; Connection: anything else.
  Error handshake();
  bool isOpen() const { return open_; }
  // Known only to the two ends of this stream, and chosen by neither.
  std::array<std::byte, 32> exporter() const;

  // Like sendmsg and recvmsg, they return bytes, or -1 and errno, EAGAIN among them; an end, announced or not, is 0.
  ssize_t send(std::span<const iovec> pieces);
  ssize_t receive(std::span<const iovec> pieces);
  void flush();  // sends accepted data that the socket has not taken yet; the next call reports an error
  bool hasUnsent() const { return sentBytes_ < records_.size(); }
  bool hasUnread() const { return unread_; }  // though the socket may have nothing more to read
  Error failure() const;                      // why the last call gave -1, if not EAGAIN
  void close();                               // says that nothing follows, as far as the socket takes it

 private:
  bool hasRoom();
  void seal(std::span<const std::byte> record);
  ssize_t noMore(std::size_t received);
  void fail(int code, const Error& error);

  const int socket_;
  std::unique_ptr<SSL, Destroyer<SSL_free>> ssl_;
  bool open_ = false;
  std::vector<std::byte> records_;  // encrypted, on their way out
  std::size_t sentBytes_ = 0;       // of these
  std::array<std::byte, kRecordBytes> gathered_;
  bool unread_ = false;
  bool over_ = false;  // nothing more will be read
  int errno_ = 0;      // why nothing can be sent or received any more
  Error error_;        // in words
  const std::uint64_t recordsPerKey_;
  std::uint64_t recordsOfKey_ = 0;
};

}  // namespace fairring
