// One rank's end of the verbs channels to a set of peers: a port with its completions, the registered staging, and the
// slots of all channels. All but a device's staging is registered when it is made. It brings completions to the
// channels: by the loop's polling while a thread spins, else by the port's descriptor. On the loop only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/loop.h"
#include "transport/verbs_device.h"

namespace fairring {

class VerbsEndpoint : public std::enable_shared_from_this<VerbsEndpoint> {
 public:
  // It may end its queue pair, and others.
  struct Handlers {
    std::function<void(const VerbsCompletion&)> completed;
    std::function<void(const Error&)> deviceFailed;  // once, or it has failed for this queue pair
  };

  // A channel posts so many slots for its peer to send to. It has as many to send from, and one more to say goodbye.
  static constexpr std::uint32_t kSlots = 32;
  static std::uint32_t completionsFor(std::size_t peers);
  static std::uint64_t slotBytesFor(std::size_t peers);

  VerbsEndpoint(Loop& loop, std::unique_ptr<VerbsDevice> device, std::span<std::byte> staging, std::size_t peers);
  VerbsEndpoint(const VerbsEndpoint&) = delete;
  VerbsEndpoint& operator=(const VerbsEndpoint&) = delete;
  ~VerbsEndpoint();

  Loop& loop() const { return loop_; }
  VerbsDevice& device() const { return *device_; }
  // The registered memory that these bytes lie in, which channels send large messages from and receive them into; null:
  // they lie elsewhere.
  const RegisteredMemory* staging(const std::byte* first, std::uint64_t bytes) const;
  // As Channel has it, for all channels.
  void addStaging(std::span<std::byte> memory);
  void onAsyncEvents();  // tells channels what the device has reported up to now
  // What the device has reported of its port, for messages: "port error, port active"; empty: nothing.
  std::string reported() const;
  RegisteredMemory takeSlots();  // for one channel, until it says that it has ended
  void channelEnds();
  const Error& failure() const { return failure_; }  // of the device; none: it has not failed

  std::unique_ptr<VerbsQueuePair> makeQueuePair(QueueDepths depths, PeerAccess access, Handlers handlers);
  void forget(const VerbsQueuePair& pair);  // its completions are for nobody from now on
  // Keeps the queue pair, which is forgotten already, until its send with this index has been completed. The endpoint's
  // end waits for all of these together, for some milliseconds at most.
  void keepUntilSent(std::unique_ptr<VerbsQueuePair> pair, std::uint32_t index);

 private:
  struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const noexcept;
  };

  struct Leaving {
    std::unique_ptr<VerbsQueuePair> pair;
    std::uint32_t lastSend = 0;
  };

  bool poll();
  void pollSoon();  // in the next turn
  std::size_t pollDevice(std::span<VerbsCompletion> into);
  void fail(const Error& error);
  void dispatch(std::span<const VerbsCompletion> completions);
  void onCompletionOfLeaving(const VerbsCompletion& completion);
  void arm();
  void onReadable();

  Loop& loop_;
  const std::unique_ptr<std::byte, Unmap> memory_;  // the device ends first, for it may still write there
  const std::unique_ptr<VerbsDevice> device_;
  std::vector<RegisteredMemory> staging_;  // that of the group first, which stays to the end
  const RegisteredMemory slots_;
  std::uint64_t slotsTaken_ = 0;  // in bytes
  std::size_t channels_ = 0;
  std::unordered_map<std::uint32_t, std::shared_ptr<Handlers>> pairs_;
  std::unordered_map<std::uint32_t, Leaving> leaving_;
  std::deque<std::string> reported_;  // the last ones
  Error failure_;
  bool polling_ = false;
  bool pollingSoon_ = false;
  bool armed_ = false;  // the next completion makes the descriptor readable
};

}  // namespace fairring
