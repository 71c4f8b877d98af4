// The keyed challenge that every connection passes before anything else of it is read. Bytes in, bytes out: no sockets.
// Both sides prove that they know the group's secret, for this connection only (each contributes a fresh nonce), and
// for one purpose between two named ranks, and one lane if there are several. Messages have fixed sizes, so there are
// no lengths to lie about.
//
//   connector -> acceptor   greeting  magic "FAIRRING" | version u32 | purpose u32 | lane u32 | from u32 |
//                                     to u32 | group id 16 B | nonce 32 B                                     76 bytes
//   acceptor  -> connector  answer    nonce 32 B | HMAC-SHA256(secret, "acceptor" | greeting | nonce) 32 B    64 bytes
//   connector -> acceptor   proof     HMAC-SHA256(secret, "connector" | greeting | nonce)                     32 bytes
//
// A secure channel that is put over the connection afterwards, such as TLS, can be bound to the challenge: each side
// sends 32 bytes that only a process which has passed this challenge and is an end of this channel can know.
//
// One Challenge object belongs to one connection and is used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fairring {

using Secret = std::array<std::byte, 32>;
using GroupId = std::array<std::byte, 16>;

enum class Purpose : std::uint32_t { Control = 1, Lane = 2, MessageLane = 3 };

// Follows from the group's name and secret: it can't be guessed, and a generation that draws a new secret has a new id.
GroupId makeGroupId(const Secret& secret, const std::string& groupName);
Secret randomSecret();
// HMAC-SHA256(secret, label | message): a secret derived from another one and from a message its holders share.
Secret derivedSecret(const Secret& secret, const std::string& label, const std::string& message);
// The same as lower-case hexadecimal: names that only holders of the secret can know.
std::string keyedName(const Secret& secret, const std::string& label, const std::string& message);

struct Greeting {
  Purpose purpose = Purpose::Control;
  std::uint32_t lane = 0;  // its number among the peer's lanes
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  GroupId group{};
};

class Challenge {
 public:
  enum class State { Wants, Done, Refused };

  // The side that connects. Its greeting is in takeOutput() at once.
  Challenge(const Greeting& greeting, const Secret& secret);
  // The side that accepts. `secretOf` gives the secret of the group that the greeting names, if that group is here and
  // expects this greeting.
  using SecretOf = std::function<std::optional<Secret>(const Greeting&)>;
  explicit Challenge(SecretOf secretOf);

  // The number of bytes missing from the next message. Never read more: later bytes belong to the connection.
  std::size_t wanted() const { return wanted_ - input_.size(); }
  State feed(std::span<const std::byte> bytes);
  std::vector<std::byte> takeOutput();
  const Greeting& greeting() const { return greeting_; }  // the connector's own claim until Done

  using Bytes32 = std::array<std::byte, 32>;
  struct ChannelBinding {
    Bytes32 mine;    // to be sent
    Bytes32 theirs;  // to be received
  };
  // Once Done. `channel`: a value that only its two ends know.
  ChannelBinding channelBinding(const Bytes32& channel) const;

 private:
  State onGreeting();
  State onAnswer();
  State onProof();

  bool connector_;
  Secret secret_{};
  SecretOf secretOf_;
  Greeting greeting_;
  std::vector<std::byte> greetingBytes_;
  std::array<std::byte, 32> nonce_{};
  std::size_t wanted_ = 0;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
  State state_ = State::Wants;
};

}  // namespace fairring
