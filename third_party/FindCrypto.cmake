# OpenSSL's libcrypto, for the keyed challenge of every connection. Defines Crypto::Crypto.
find_package(OpenSSL QUIET COMPONENTS Crypto)
if(NOT OPENSSL_CRYPTO_LIBRARY OR NOT OPENSSL_INCLUDE_DIR)
  message(FATAL_ERROR "Fairring needs OpenSSL's libcrypto and its headers: apt-get install libssl-dev "
                      "(elsewhere: -DOPENSSL_ROOT_DIR=<prefix>)")
endif()
if(NOT TARGET Crypto::Crypto)
  add_library(Crypto::Crypto ALIAS OpenSSL::Crypto)
endif()
message(STATUS "libcrypto ${OPENSSL_VERSION}: ${OPENSSL_CRYPTO_LIBRARY}")
set(Crypto_FOUND TRUE)
