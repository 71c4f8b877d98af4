#include "transport/challenge.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace fairring {

namespace {

using Digest = std::array<std::byte, 32>;
using Bytes = std::span<const std::byte>;

constexpr std::array kMagic{'F', 'A', 'I', 'R', 'R', 'I', 'N', 'G'};
constexpr std::uint32_t kVersion = 2;
static_assert(std::endian::native == std::endian::little, "greetings travel as they lie in memory, little endian");
struct GreetingOnWire {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  Greeting greeting;
  std::array<std::byte, 32> nonce;
};
constexpr std::size_t kGreetingBytes = sizeof(GreetingOnWire);
static_assert(kGreetingBytes == 76);
constexpr std::size_t kAnswerBytes = 64;
constexpr std::size_t kProofBytes = 32;

void append(std::vector<std::byte>& out, Bytes bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

Bytes bytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

// The label's length is fixed by its zero byte, so no label and message can be read as another label and message.
Digest mac(const Secret& secret, std::string_view label, Bytes message) {
  std::vector<std::byte> input;
  append(input, bytesOf(label));
  input.push_back(std::byte{0});
  append(input, message);
  Digest digest;
  unsigned int length = 0;
  const unsigned char* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                   reinterpret_cast<const unsigned char*>(input.data()), input.size(),
                                   reinterpret_cast<unsigned char*>(digest.data()), &length);
  check(done != nullptr && length == digest.size(), ErrorKind::System, "HMAC-SHA256 is not available in libcrypto");
  return digest;
}

bool equalInConstantTime(Bytes a, Bytes b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::array<std::byte, 32> randomBytes() {
  std::array<std::byte, 32> bytes;
  const int drawn = RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  check(drawn == 1, ErrorKind::System, "libcrypto has no random bytes");
  return bytes;
}

std::vector<std::byte> concatenated(Bytes a, Bytes b) {
  std::vector<std::byte> out(a.begin(), a.end());
  append(out, b);
  return out;
}

}  // namespace

Secret randomSecret() { return randomBytes(); }

GroupId makeGroupId(const Secret& secret, const std::string& groupName) {
  const Digest digest = mac(secret, "group", bytesOf(groupName));
  GroupId id;
  std::copy_n(digest.begin(), id.size(), id.begin());
  return id;
}

Secret derivedSecret(const Secret& secret, const std::string& label, const std::string& message) {
  return mac(secret, label, bytesOf(message));
}

std::string keyedName(const Secret& secret, const std::string& label, const std::string& message) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : mac(secret, label, bytesOf(message))) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

Challenge::Challenge(const Greeting& greeting, const Secret& secret)
    : connector_(true), secret_(secret), greeting_(greeting), wanted_(kAnswerBytes) {
  const GreetingOnWire message{.greeting = greeting, .nonce = randomBytes()};
  append(greetingBytes_, std::as_bytes(std::span(&message, 1)));
  output_ = greetingBytes_;
}

Challenge::Challenge(SecretOf secretOf) : connector_(false), secretOf_(std::move(secretOf)), wanted_(kGreetingBytes) {}

Challenge::State Challenge::feed(Bytes bytes) {
  assert(state_ == State::Wants && bytes.size() <= wanted());
  append(input_, bytes);
  if (wanted() > 0) return state_;
  if (connector_) {
    state_ = onAnswer();
  } else {
    state_ = wanted_ == kGreetingBytes ? onGreeting() : onProof();
  }
  input_.clear();
  return state_;
}

std::vector<std::byte> Challenge::takeOutput() { return std::exchange(output_, {}); }

Challenge::State Challenge::onGreeting() {
  GreetingOnWire message{};
  std::memcpy(&message, input_.data(), kGreetingBytes);
  const Purpose purpose = message.greeting.purpose;
  const bool isKnown = purpose >= Purpose::Control && purpose <= Purpose::MessageLane;
  if (message.magic != kMagic || message.version != kVersion || !isKnown) return State::Refused;
  greeting_ = message.greeting;
  const auto secret = secretOf_(greeting_);
  if (!secret) return State::Refused;
  secret_ = *secret;
  greetingBytes_ = input_;
  nonce_ = randomBytes();
  output_ = concatenated(nonce_, mac(secret_, "acceptor", concatenated(greetingBytes_, nonce_)));
  wanted_ = kProofBytes;
  return State::Wants;
}

Challenge::State Challenge::onAnswer() {
  const Bytes in(input_);
  const auto signedBytes = concatenated(greetingBytes_, in.first(32));
  if (!equalInConstantTime(in.subspan(32), mac(secret_, "acceptor", signedBytes))) return State::Refused;
  std::ranges::copy(in.first(32), nonce_.begin());
  const Digest proof = mac(secret_, "connector", signedBytes);
  output_.assign(proof.begin(), proof.end());
  return State::Done;
}

Challenge::State Challenge::onProof() {
  const Digest expected = mac(secret_, "connector", concatenated(greetingBytes_, nonce_));
  return equalInConstantTime(input_, expected) ? State::Done : State::Refused;
}

Challenge::ChannelBinding Challenge::channelBinding(const Bytes32& channel) const {
  assert(state_ == State::Done);
  const auto said = concatenated(concatenated(greetingBytes_, nonce_), channel);
  const Digest ofConnector = mac(secret_, "connector's channel", said);
  const Digest ofAcceptor = mac(secret_, "acceptor's channel", said);
  return connector_ ? ChannelBinding{ofConnector, ofAcceptor} : ChannelBinding{ofAcceptor, ofConnector};
}

}  // namespace fairring
