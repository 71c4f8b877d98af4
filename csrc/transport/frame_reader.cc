#include "transport/frame_reader.h"

#include <algorithm>
#include <cstring>

#include "transport/send_queue.h"

namespace fairring {

std::array<iovec, 2> FrameReader::room() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  const iovec rest{buffer_.data() + end_, buffer_.size() - end_};
  if (!inChunk_) return {rest, iovec{nullptr, 0}};
  if (std::byte* place = reassembly_.place(header_)) return {iovec{place + here_, header_.bytes - here_}, rest};
  scratch_.resize(kScratch);
  const std::size_t thrown = std::min<std::size_t>(scratch_.size(), header_.bytes - here_);
  if (thrown < header_.bytes - here_) return {iovec{scratch_.data(), thrown}, iovec{nullptr, 0}};
  return {iovec{scratch_.data(), thrown}, rest};
}

Error FrameReader::filled(std::size_t bytes) {
  const std::size_t ofChunk = inChunk_ ? std::min<std::size_t>(bytes, header_.bytes - here_) : 0;
  end_ += bytes - ofChunk;
  if (inChunk_) chunkCame(ofChunk);
  while (!inChunk_ && !ended_ && end_ - begin_ >= sizeof header_) {
    if (Error error = onHeader()) return error;
    if (!inChunk_) continue;
    const std::size_t there = std::min<std::size_t>(end_ - begin_, header_.bytes);
    std::byte* place = reassembly_.place(header_);
    if (place != nullptr && there > 0) std::memcpy(place, buffer_.data() + begin_, there);
    begin_ += there;
    chunkCame(there);
  }
  return {};
}

Error FrameReader::onHeader() {
  std::memcpy(&header_, buffer_.data() + begin_, sizeof header_);
  begin_ += sizeof header_;
  if (Error error = faultOf(header_)) return error;
  acked_ = header_.acked;
  ended_ = header_.message.kind == kEnd;
  if (!hasMessage(header_)) return {};
  if (Error error = reassembly_.begin(header_)) return error;
  inChunk_ = true;
  here_ = 0;
  return {};
}

void FrameReader::chunkCame(std::size_t bytes) {
  here_ += static_cast<std::uint32_t>(bytes);
  if (here_ < header_.bytes) return;
  inChunk_ = false;
  ++chunks_;
  urgent_ = urgent_ || header_.message.bytes > SendQueue::kSmallBytes;
  reassembly_.complete(header_);
}

}  // namespace fairring
