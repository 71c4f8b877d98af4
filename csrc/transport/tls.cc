#include "transport/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <cstdio>

namespace fairring {

namespace {

using Key = std::unique_ptr<EVP_PKEY, Destroyer<EVP_PKEY_free>>;
using Verification = std::unique_ptr<X509_STORE_CTX, Destroyer<X509_STORE_CTX_free>>;
using File = std::unique_ptr<std::FILE, Destroyer<std::fclose>>;

// The fastest first, with hardware for AES and without.
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384";
constexpr std::size_t kReadBytes = 4 * TlsStream::kRecordBytes;  // requested from the socket at once

template <class... Parts>
void demand(bool holds, const Parts&... parts) {
  check(holds, ErrorKind::Configuration, parts...);
}

std::string why() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason != nullptr ? reason : "it holds none";
}

// Instead of a prompt on the terminal.
int noPassword(char*, int, int, void*) { return 0; }

Key readKey(const std::string& path) {
  const File file(std::fopen(path.c_str(), "re"));
  demand(file != nullptr, "FAIRRING_TLS_KEY=", path, " can't be read: ", systemError("fopen").text());
  Key key(PEM_read_PrivateKey(file.get(), nullptr, noPassword, nullptr));
  demand(key != nullptr, "FAIRRING_TLS_KEY=", path, " gives no key (", why(),
         "); give a private key in PEM that no password protects");
  return key;
}

// Whether other ranks will accept the certificate, as a client's and as a server's.
void verifyOwn(SSL_CTX* context, const TlsFiles& files) {
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
    const Verification verification(X509_STORE_CTX_new());
    STACK_OF(X509)* between = nullptr;
    SSL_CTX_get0_chain_certs(context, static_cast<void*>(&between));
    const bool begun = verification && X509_STORE_CTX_init(verification.get(), SSL_CTX_get_cert_store(context),
                                                           SSL_CTX_get0_certificate(context), between) == 1;
    check(begun, ErrorKind::System, "libcrypto: no memory");
    X509_STORE_CTX_set_purpose(verification.get(), purpose);
    const bool good = X509_verify_cert(verification.get()) == 1;
    demand(good, "FAIRRING_TLS_CERTIFICATE=", files.certificate, " would be refused by other ranks: ",
           X509_verify_cert_error_string(X509_STORE_CTX_get_error(verification.get())),
           "; give one that is in date, that FAIRRING_TLS_CA=", files.authority,
           " has signed, and that may serve both sides of a connection (serverAuth and clientAuth)");
  }
}

}  // namespace

Tls::Tls(const TlsFiles& files) : context_(SSL_CTX_new(TLS_method())) {
  ERR_clear_error();
  SSL_CTX* context = context_.get();
  const bool modern = context != nullptr && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                      SSL_CTX_set_ciphersuites(context, kCiphers) == 1;
  demand(modern, "FAIRRING_TLS needs TLS 1.3, which the OpenSSL of this process lacks (", OpenSSL_version(0),
         "); use OpenSSL 1.1.1 or later");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
  demand(SSL_CTX_load_verify_locations(context, files.authority.c_str(), nullptr) == 1,
         "FAIRRING_TLS_CA=", files.authority, " gives no certificates (", why(), "); give them in PEM");
  demand(SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) == 1,
         "FAIRRING_TLS_CERTIFICATE=", files.certificate, " gives no certificate (", why(), "); give it in PEM");
  const Key key = readKey(files.key);
  demand(X509_check_private_key(SSL_CTX_get0_certificate(context), key.get()) == 1 &&
             SSL_CTX_use_PrivateKey(context, key.get()) == 1,
         "FAIRRING_TLS_KEY=", files.key, " does not match FAIRRING_TLS_CERTIFICATE=", files.certificate, " (", why(),
         "); give the key that the certificate was made for");
  verifyOwn(context, files);
}

std::unique_ptr<TlsStream> Tls::stream(TlsStream::Side side, int socket, std::uint64_t recordsPerKey) const {
  return std::make_unique<TlsStream>(context_.get(), side, socket, recordsPerKey);
}

}  // namespace fairring
