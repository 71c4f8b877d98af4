// A lane: one connection to one peer that has passed the challenge. It sends the chunks that it is given, from their
// place, as many as the socket takes per system call, and keeps them until they are acknowledged. It receives by a
// FrameReader and acknowledges whole chunks: at once if the sender waits for it, else with the next header that way.
// If the loop has helpers, they send what is long: it is a shared job's until that ends, and nothing else of the lane
// is sent meanwhile. Owned by the peer's channel, which may drop it from any of its calls. On the loop only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "base/loop.h"
#include "transport/channel.h"
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
  // The connection is gone: broken, or, if the error is empty, closed by the peer. Called once.
  virtual void onGone(std::uint32_t lane, const Error& error) = 0;
  // The peer sent something that is not allowed.
  virtual void onFault(const Error& error) = 0;
};

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  Lane(Loop& loop, std::weak_ptr<LaneOwner> owner, Reassembly& reassembly, std::uint32_t index, Stream stream);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  void start();  // once it is owned

  bool hasRoom() const {
    return !blocked_ && !broken_ && !gone_ && output_.frames.size() + helpedFrames_ < kMostPieces / 2;
  }
  // The size of a chunk that this lane carries in a few milliseconds. alone: its peer has no other lane.
  std::uint32_t chunkBytes(bool alone) const;
  double secondsFor(std::uint64_t bytes) const;  // until these bytes, and all that the lane has, are delivered
  double bytesPerSecond() const { return rate_.bytesPerSecond(); }
  std::uint64_t outstanding() const { return outstanding_; }  // unacknowledged bytes of large messages

  void give(SendQueue::Chunk chunk);
  void flush();
  std::uint64_t bytesSeen() const { return seen_; }
  Packets packets() const;                        // none if the system does not count them
  std::uint64_t sends() const { return sends_; }  // system calls that took bytes of messages
  bool peerHasEnded() const { return reader_.hasEnded(); }
  void drop();    // closes; the owner is not called any more
  void sayEnd();  // before drop(): tells the peer that nothing follows, as far as the socket takes it
  // Once it is gone: the chunks that were not acknowledged.
  std::deque<SendQueue::Chunk> takeUnacknowledged() { return std::exchange(unacknowledged_, {}); }

 private:
  static constexpr std::size_t kMostPieces = 64;              // of one sendmsg
  static constexpr std::uint32_t kMostUnconfirmed = 32;       // chunks that wait for a header in the other direction
  static constexpr std::chrono::milliseconds kMostDelay{20};  // of an acknowledgement
  static constexpr std::size_t kMostBytesPerTurn = 1 << 20;   // read before other descriptors get their turn

  struct Frame {  // on its way out
    ChunkHeader header;
    const std::byte* data;
    std::shared_ptr<SendQueue::Outgoing> of;  // none for a header without a message
  };

  struct Output {  // in order
    std::deque<Frame> frames;
    std::size_t offset = 0;     // of the first frame, that has been sent
    std::size_t sentWhole = 0;  // chunks, since they were counted last
    std::uint64_t sends = 0;    // likewise
    bool isFull = false;        // the stream takes no more for now
    bool isBroken = false;

    std::uint64_t bytes() const;
    bool send(Stream& stream);  // as much as one system call takes; false: no more can go at present
    void sent(std::size_t bytes);
  };

  bool isForHelper() const;
  void handOver();
  void takeBack();
  void endHelp();
  void count();
  void settle();
  Loop::Ready whenReady();
  void onReady(std::uint32_t events);
  void read(LaneOwner& owner);
  void readOn();
  bool takeAcknowledgements(LaneOwner& owner);
  void acknowledge();
  void acknowledgeSoon();
  void leave(LaneOwner& owner, const Error& error);

  Loop& loop_;
  const std::weak_ptr<LaneOwner> owner_;
  const std::uint32_t index_;
  Stream stream_;
  FrameReader reader_;
  RateEstimator rate_;
  bool gone_ = false;
  bool broken_ = false;   // reading has yet to find that
  bool blocked_ = false;  // the stream takes no more for now

  Output output_;
  std::shared_ptr<Output> withHelper_;  // touched by it until its job ends
  std::size_t helpedFrames_ = 0;        // that were handed over so
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
