// The data movement of a communicator's calls, in parts that fit into shared memory.
#include <algorithm>
#include <cstring>

#include "emulated.h"
#include "nccl_communicator.h"
#include "nccl_reduction.h"

namespace emulated {
namespace {

// The pieces of data that a rank's own array has one of for each rank.
bool sendsOneEach(Kind kind) { return kind == Kind::ReduceScatter || kind == Kind::AllToAll; }

std::byte* bytesAt(const void* address, std::size_t bytes) {
  return static_cast<std::byte*>(reach(address, bytes, "a call of NCCL"));
}

}  // namespace

bool Communicator::agree(const CallFacts& facts) {
  const auto isOver = [this] { return isAborted(); };
  shared_->facts(rank_) = facts;
  if (!shared_->meet(isOver)) return false;
  for (int rank = 0; rank < ranks_; ++rank) {
    const CallFacts& other = shared_->facts(rank);
    if (other == facts) continue;
    fatal("NCCL: calls that do not match: rank %d calls kind %ld with %ld elements, rank %d kind %ld with %ld", rank_,
          static_cast<long>(facts.kind), static_cast<long>(facts.count), rank, static_cast<long>(other.kind),
          static_cast<long>(other.count));
  }
  return shared_->meet(isOver);
}

void Communicator::collective(const Call& call) {
  const auto isOver = [this] { return isAborted(); };
  if (!agree({.kind = static_cast<std::int64_t>(call.kind),
              .count = static_cast<std::int64_t>(call.count),
              .type = call.type,
              .operation = std::min<int>(call.operation, ncclNumOps),
              .root = call.peer}))
    return;
  const std::size_t share = call.count * bytesOf(call.type);
  const std::size_t all = sendsOneEach(call.kind) ? share * static_cast<std::size_t>(ranks_) : share;
  const bool contributes = call.kind != Kind::Broadcast || rank_ == call.peer;
  const std::byte* own = contributes && all > 0 ? bytesAt(call.send, all) : nullptr;
  for (std::size_t from = 0; from < all; from += kPartBytes) {
    const std::size_t bytes = std::min(kPartBytes, all - from);
    if (contributes) std::memcpy(shared_->part(rank_), own + from, bytes);
    if (!shared_->meet(isOver)) return;
    takePart(call, from, bytes, share);
    if (!shared_->meet(isOver)) return;
  }
}

// bytes: of each rank's array from `from` on, that lie in the parts.
void Communicator::takePart(const Call& call, std::size_t from, std::size_t bytes, std::size_t share) {
  std::vector<const std::byte*> parts;
  parts.reserve(static_cast<std::size_t>(ranks_));
  for (int rank = 0; rank < ranks_; ++rank) parts.push_back(shared_->part(rank));
  const auto ranks = static_cast<std::size_t>(ranks_);
  const bool isGather = call.kind == Kind::AllGather || call.kind == Kind::AllToAll || call.kind == Kind::Gather;
  if ((call.kind == Kind::Reduce || call.kind == Kind::Gather) && rank_ != call.peer) return;
  std::byte* to = bytesAt(call.receive, isGather ? share * ranks : share);
  const std::size_t element = bytesOf(call.type);
  if (!sendsOneEach(call.kind)) {
    if (call.kind == Kind::Broadcast) std::memcpy(to + from, parts[static_cast<std::size_t>(call.peer)], bytes);
    if (isGather) {
      for (std::size_t rank = 0; rank < ranks; ++rank) std::memcpy(to + share * rank + from, parts[rank], bytes);
    }
    if (call.kind == Kind::AllReduce || call.kind == Kind::Reduce)
      reduce(to + from, parts, bytes / element, call.type, std::min<int>(call.operation, ncclNumOps), call.factor);
    return;
  }
  const std::size_t mine = share * static_cast<std::size_t>(rank_);
  const std::size_t begin = std::max(from, mine);
  const std::size_t end = std::min(from + bytes, mine + share);
  if (begin >= end) return;
  for (auto& part : parts) part += begin - from;
  if (call.kind == Kind::ReduceScatter) {
    reduce(to + begin - mine, parts, (end - begin) / element, call.type, std::min<int>(call.operation, ncclNumOps),
           call.factor);
    return;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    std::memcpy(to + share * rank + begin - mine, parts[rank], end - begin);
}

// The first call to each peer in each direction goes before the others.
void Communicator::pointToPoint(const std::vector<Call>& calls) {
  std::vector<std::size_t> done(calls.size(), 0);
  const auto step = [&] {
    std::set<std::pair<Kind, int>> busy;
    bool hasMoved = false;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (done[i] == calls[i].count * bytesOf(calls[i].type)) continue;
      if (busy.emplace(calls[i].kind, calls[i].peer).second) hasMoved = moveLetter(calls[i], done[i]) || hasMoved;
    }
    if (hasMoved) shared_->notify();
    return busy.empty();
  };
  shared_->await(step, [this] { return isAborted(); });
}

bool Communicator::moveLetter(const Call& call, std::size_t& done) {
  const std::size_t left = call.count * bytesOf(call.type) - done;
  const bool isSend = call.kind == Kind::Send;
  Letter& letter = isSend ? shared_->letter(rank_, call.peer) : shared_->letter(call.peer, rank_);
  const bool isFull = letter.written.load() != letter.taken.load();
  if (isFull == isSend) return false;
  if (isSend) {
    letter.bytes = std::min(kLetterBytes, left);
    std::memcpy(letter.data, bytesAt(call.send, done + left) + done, letter.bytes);
  } else {
    if (letter.bytes > left)
      fatal("NCCL: rank %d receives %zu bytes from rank %d, which sends more", rank_, done + left, call.peer);
    std::memcpy(bytesAt(call.receive, done + left) + done, letter.data, letter.bytes);
  }
  done += letter.bytes;
  (isSend ? letter.written : letter.taken).fetch_add(1);
  return true;
}

}  // namespace emulated
