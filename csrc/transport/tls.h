// The identity of this rank and the authority that it trusts: its certificate and key, and the certificate of the
// authority that signed those of all ranks. Makes the TLS streams of one group. Only TLS 1.3 is used, and both sides
// show a certificate. Names in certificates are ignored: the challenge has told which rank the peer is.
// Made by a caller; then immutable, so any thread may use it.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "transport/tls_stream.h"

namespace fairring {

struct TlsFiles {           // PEM
  std::string certificate;  // and any certificates between it and the authority
  std::string key;
  std::string authority;
};

class Tls {
 public:
  // Throws Failure(Configuration) if they can't be read, don't fit together, or would be refused by other ranks.
  explicit Tls(const TlsFiles& files);

  // On a connected socket, which stays the caller's and has to live longer.
  std::unique_ptr<TlsStream> stream(TlsStream::Side side, int socket,
                                    std::uint64_t recordsPerKey = TlsStream::kRecordsPerKey) const;

 private:
  std::unique_ptr<SSL_CTX, Destroyer<SSL_CTX_free>> context_;
};

}  // namespace fairring
