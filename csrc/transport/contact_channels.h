// Channels whose ends find each other by a contact that travels over the (authenticated) control connections:
// TensorPipe's. The lower of two ranks sends its contact and the higher one connects. Code that decides about these
// channels sees only this interface, so it can be built without them.
// On the loop only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "transport/challenge.h"
#include "transport/channels.h"

namespace fairring {

class ContactChannels : public Channels {
 public:
  virtual std::string contact() const = 0;
  virtual void connect(int peer, const std::string& contact) = 0;
  // Called once every peer's channel is connected and proven. A channel that can't be made ends by its receiver.
  virtual void whenOpen(std::function<void()> open) = 0;
};

struct ContactChannelsSettings {
  std::string transport;    // "uv", "shm", "ibv"
  std::string bindAddress;  // IP
  int rank = 0;
  std::vector<int> peers;
  Secret secret{};
};

// Throws Failure(Configuration) if this machine can't use the transport, with the reason and the remedy.
using MakeContactChannels = std::function<std::unique_ptr<ContactChannels>(
    Loop& loop, const ContactChannelsSettings& settings, MessageReceiver& receiver)>;

}  // namespace fairring
