// The seam between the chains of slices (device/device_chain.h) and a device: streams, events, copies, sums, level 0,
// and the two ways in which a stream and the loop wait for each other. CUDA stands behind it, and in the tests a
// simulation whose streams run as late and in any order that this header allows: a chain that relies on more fails
// there.
//
// Order. Work of one stream runs in the order in which it was enqueued. Between streams there is none but by events.
// - A *gate* holds a stream until a word in pinned memory has reached a value. The loop writes words, with release
//   order, and calls nothing here. Work behind the gate sees all that the writer wrote before. Words only count up.
// - *write* writes a word in pinned memory when all that was enqueued before it in its stream is complete. What copies
//   out of the device wrote is then visible to whoever reads the word, with acquire order. So a stream tells where it
//   is.
// So the host never waits for the device, and no stream but one behind a gate waits for the host.
//
// Threads: what enqueues is called by callers, one at a time for each accelerator (their group's order), in program
// order: that is the order of launches. abort() may come from any thread but the loop.
// All of it throws Failure; one that has thrown has enqueued nothing that the host will be told of.
// One accelerator serves one group on one rank and one device; a trial's goes on to the group that it was made for.
// Whatever is loaded or connected lazily (kernels, the communicators of level 0) is there before its constructor
// returns: loading may wait for the device to be idle, and a shut gate keeps it busy. But what level 0 connects anew
// for a size that it has not had waits for the ranks of the machine, on the caller's thread. The destructor waits for
// all that was enqueued: no gate may be shut then, and no chain may be enqueued any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "exchange/exchange.h"
#include "kernels/reduce.h"

namespace fairring {

class Accelerator {
 public:
  using Stream = void*;                 // as the device's runtime knows it: the accelerator's own, or a caller's
  using Event = std::shared_ptr<void>;  // a point in a stream; given back when the last reference goes, on any thread
  using Word = std::uint64_t;           // in pinned memory, aligned to 8 bytes; read and written as std::atomic_ref
  using Memory = std::shared_ptr<std::byte>;

  virtual ~Accelerator() = default;

  // Streams of its own, which slices use in turn. At least one; their number is fixed.
  virtual std::size_t streams() const = 0;
  virtual Stream stream(std::size_t index) = 0;

  // Before the first chain, for its whole life. Memory outlives the accelerator where somebody still holds it. What is
  // dropped before serves the next one that wants as much: nothing that is enqueued may use it then.
  virtual Memory pinned(std::uint64_t bytes) = 0;  // of the host, zeroed; the device reads and writes it
  virtual Memory device(std::uint64_t bytes) = 0;

  virtual Event record(Stream stream) = 0;
  virtual void wait(Stream stream, const Event& event) = 0;

  // Copies between pinned memory and the device's. Zero bytes are nothing.
  virtual void copyOut(Stream stream, void* host, const void* device, std::uint64_t bytes) = 0;
  virtual void copyIn(Stream stream, void* device, const void* host, std::uint64_t bytes) = 0;
  // kernels/reduce.h's reduce() in memory of the device, with its meaning of operations and order; not its speed.
  // One input that nothing scales or divides is a copy; it may be `out` itself.
  virtual void reduce(Stream stream, const Reduction& reduction, void* out, std::span<const Input> inputs,
                      std::uint64_t elements) = 0;

  // Holds the stream until *word >= atLeast.
  virtual void gate(Stream stream, const Word* word, Word atLeast) = 0;
  virtual void write(Stream stream, Word* word, Word value) = 0;

  // Fills the memory with ones, which floats of every kind read as not a number, if *word is not zero by then.
  using Results = std::span<const std::span<std::byte>>;
  virtual void poisonIf(Stream stream, const Word* word, Results results) = 0;

  // Level 0, between the ranks of the machine, which make the same calls in the same order. Of the slice they read the
  // layout's level 0 (its one rail, or none where there are no elements; shards may be unequal and empty), portions,
  // scale and image, which point to memory of the device. The slice is only read during the call. The layout's elements
  // are bytes; portions whose user is null are neither read nor written.
  //   reduceScatter  users' -> this rank's shard of the image, reduced over the machine, each rank's floats multiplied
  //                  by its scale; not divided: that is the last reducing level's, which is above
  //   allGather      the ranks' shards of their images -> users', all of it
  // If a slice has a block for each rank (plan/blocks.h), users' memory has those of each tensor one behind the
  // other, by rank, alike on all ranks. Its own block a rank brings and takes away by itself:
  //   load           users' -> the image
  //   store          the image -> users'
  virtual void reduceScatter(Stream stream, const Slice& slice) = 0;
  virtual void allGather(Stream stream, const Slice& slice) = 0;
  virtual void load(Stream stream, const Slice& slice) = 0;
  virtual void store(Stream stream, const Slice& slice) = 0;

  // Gives up level 0: what of it is enqueued, or will be, ends at once, with any result. May take a while.
  virtual void abort() noexcept = 0;
};

}  // namespace fairring
