// A lane: one connection that has passed the challenge, to one peer. Sends the chunks that it is given, from where they
// lie, as many as the socket takes in one system call, and keeps them until they are acknowledged; receives by a
// FrameReader, and acknowledges what came whole: at once where the sender waits for it, else with the next header that
// goes that way anyway. Owned by the peer's channel, which may drop it from any of its calls. On the loop only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "base/loop.h"
#include "transport/channels.h"
#include "transport/frame_reader.h"
#include "transport/rate_estimator.h"
#include "transport/send_queue.h"
#include "transport/stream.h"

namespace fairring {

class Lane;

class LaneOwner {
 public:
  virtual ~LaneOwner() = default;
  virtual void onAcknowledged(const SendQueue::Chunk& chunk) = 0;
  // Chunks were acknowledged, or there is room for more.
  virtual void onProgress() = 0;
  // The connection is gone: broken, or, where the error is empty, closed by the peer. Called once.
  virtual void onGone(std::uint32_t lane, const Error& error) = 0;
  // The peer sent what it must not.
  virtual void onFault(const Error& error) = 0;
};

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  Lane(Loop& loop, std::weak_ptr<LaneOwner> owner, Reassembly& reassembly, std::uint32_t index, Stream stream);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  void start();  // once it is owned

  bool hasRoom() const { return !blocked_ && !gone_ && output_.size() < kMostPieces / 2; }
  // The size of a chunk that this lane carries in a few milliseconds. alone: its peer has no other lane.
  std::uint32_t chunkBytes(bool alone) const;
  double secondsFor(std::uint64_t bytes) const;  // until these, and all that it has, are through
  double bytesPerSecond() const { return rate_.bytesPerSecond(); }
  std::uint64_t outstanding() const { return outstanding_; }  // bytes of large messages that are not acknowledged

  void give(SendQueue::Chunk chunk);
  void flush();
  bool isFlushed() const { return output_.empty() && !stream_.hasUnsent(); }
  std::uint64_t bytesSeen() const { return seen_; }
  Packets packets() const;                        // none where the system does not tell
  std::uint64_t sends() const { return sends_; }  // system calls that took bytes of messages
  bool peerHasEnded() const { return reader_.hasEnded(); }
  void drop();    // closes; nothing is told to the owner any more
  void sayEnd();  // before that: nothing follows; as far as the socket takes it
  // Once it is gone: what was not acknowledged.
  std::deque<SendQueue::Chunk> takeUnacknowledged() { return std::exchange(unacknowledged_, {}); }

 private:
  static constexpr std::size_t kMostPieces = 64;              // of one sendmsg
  static constexpr std::uint32_t kMostUnconfirmed = 32;       // chunks that wait for a header to go the other way
  static constexpr std::chrono::milliseconds kMostDelay{20};  // of an acknowledgement
  static constexpr std::size_t kMostBytesPerTurn = 1 << 20;   // read before others get their turn

  struct Frame {  // on its way out
    ChunkHeader header;
    const std::byte* data;
    std::shared_ptr<SendQueue::Outgoing> of;  // none of a header without a message
  };

  Loop::Ready whenReady();
  void onReady(std::uint32_t events);
  void read(LaneOwner& owner);
  void readOn();
  bool takeAcknowledgements(LaneOwner& owner);
  void acknowledge();
  void acknowledgeSoon();
  void sent(std::size_t bytes);
  void leave(LaneOwner& owner, const Error& error);

  Loop& loop_;
  const std::weak_ptr<LaneOwner> owner_;
  const std::uint32_t index_;
  Stream stream_;
  FrameReader reader_;
  RateEstimator rate_;
  bool gone_ = false;
  bool blocked_ = false;  // the stream takes no more for now

  std::deque<Frame> output_;
  std::size_t offset_ = 0;  // of the first frame, that has been sent
  std::deque<SendQueue::Chunk> unacknowledged_;
  std::size_t sentWhole_ = 0;  // of these
  std::uint64_t outstanding_ = 0;
  std::uint32_t acked_ = 0;      // by the peer
  std::uint32_t confirmed_ = 0;  // by us, in the last header that went out
  Loop::TimerId confirmation_ = 0;
  std::uint64_t seen_ = 0;
  std::uint64_t sends_ = 0;
};

}  // namespace fairring
