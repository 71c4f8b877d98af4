// Pipes that find each other by a contact which travels over the (authenticated) control connections: TensorPipe's.
// Of two ranks the lower tells its contact and the higher connects. Behind this interface so that what decides about
// them does not have to be built with them.
// On the loop only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/loop.h"
#include "transport/hello.h"
#include "transport/pipes.h"

namespace fairring {

class ContactPipes : public Pipes {
 public:
  virtual std::string contact() const = 0;
  virtual void connect(int peer, const std::string& contact) = 0;
  // Called once when every peer's pipe is connected and proven. A pipe that can't be made ends by its receiver.
  virtual void whenOpen(std::function<void()> open) = 0;
};

struct ContactPipesSettings {
  std::string transport;    // "uv", "shm", "ibv"
  std::string bindAddress;  // IP
  int rank = 0;
  std::vector<int> peers;
  Secret secret{};
};

// Throws Failure(Configuration) where this machine can't use the transport, with the reason and what to do.
using MakeContactPipes = std::function<std::unique_ptr<ContactPipes>(Loop& loop, const ContactPipesSettings& settings,
                                                                     PipeReceiver& receiver)>;

}  // namespace fairring
