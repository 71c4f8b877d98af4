# OpenSSL's libcrypto, for the keyed challenge of every connection, and its libssl, for FAIRRING_TLS. Defines
# Crypto::Crypto and Crypto::Ssl.
find_package(OpenSSL 1.1.1 QUIET COMPONENTS Crypto SSL)
if(NOT OPENSSL_FOUND)
  message(FATAL_ERROR "Fairring needs OpenSSL 1.1.1 or later with its headers: apt-get install libssl-dev "
                      "(elsewhere: -DOPENSSL_ROOT_DIR=<prefix>)")
endif()
if(NOT TARGET Crypto::Crypto)
  add_library(Crypto::Crypto ALIAS OpenSSL::Crypto)
  add_library(Crypto::Ssl ALIAS OpenSSL::SSL)
endif()
message(STATUS "OpenSSL ${OPENSSL_VERSION}: ${OPENSSL_CRYPTO_LIBRARY}, ${OPENSSL_SSL_LIBRARY}")
set(Crypto_FOUND TRUE)
