// Certificates for tests, made on the spot: an authority, and the certificates that it signs. Their folder is deleted.
#pragma once

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "transport/tls.h"

namespace fairring {

class Authority {
 public:
  Authority() {
    std::string name = (std::filesystem::temp_directory_path() / "fairring-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    certificate_ = sign("authority of " + name, key_, 1);
    write("authority", [this](std::FILE* file) { PEM_write_X509(file, certificate_.get()); });
  }
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;
  ~Authority() { std::filesystem::remove_all(folder_); }

  std::string file() const { return folder_ / "authority"; }

  // A certificate that is valid for that many days more, and its key.
  TlsFiles issue(const std::string& name, int days = 1) {
    const Key key = newKey();
    const Certificate made = sign(name, key, days);
    write(name, [&](std::FILE* file) { PEM_write_X509(file, made.get()); });
    write(name + ".key",
          [&](std::FILE* file) { PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
    return {folder_ / name, folder_ / (name + ".key"), file()};
  }

 private:
  template <auto Destroy>
  struct Destroyer {
    void operator()(auto* handle) const noexcept { Destroy(handle); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Destroyer<EVP_PKEY_free>>;
  using Certificate = std::unique_ptr<X509, Destroyer<X509_free>>;
  static constexpr long kDaySeconds = 86'400;

  static Key newKey() {
    const std::unique_ptr<EVP_PKEY_CTX, Destroyer<EVP_PKEY_CTX_free>> maker(
        EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, nullptr));
    EVP_PKEY* key = nullptr;
    EVP_PKEY_keygen_init(maker.get());
    EXPECT_EQ(EVP_PKEY_keygen(maker.get(), &key), 1);
    return Key(key);
  }

  Certificate sign(const std::string& name, const Key& key, int days) {
    Certificate made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -2 * kDaySeconds);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), days * kDaySeconds);
    X509_set_pubkey(made.get(), key.get());
    X509_NAME* subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(made.get(), certificate_ ? X509_get_subject_name(certificate_.get()) : subject);
    X509_EXTENSION* use =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, certificate_ ? "CA:FALSE" : "critical,CA:TRUE");
    X509_add_ext(made.get(), use, -1);
    X509_EXTENSION_free(use);
    EXPECT_GT(X509_sign(made.get(), key_.get(), nullptr), 0);
    return made;
  }

  void write(const std::string& name, const std::function<void(std::FILE*)>& content) const {
    std::FILE* file = std::fopen((folder_ / name).c_str(), "w");
    ASSERT_NE(file, nullptr);
    content(file);
    std::fclose(file);
  }

  std::filesystem::path folder_;
  Key key_ = newKey();
  Certificate certificate_;
  long serial_ = 0;
};

}  // namespace fairring
