// The work of one device thread in a sum of rows. For the CUDA kernels and for the tests, as device_thread.h, with
// which it belongs in a namespace per instruction set.
//
// A power of two of threads share a row. Each takes pieces of it: sixteen bytes if the rows are aligned to that, else
// one element. It adds the row's entries there in their order. Several entries are read before they are added, because
// the reads take most of the time.
#pragma once

#include <cstdint>

#include "kernels/anywhere.h"
#include "kernels/device_thread.h"

namespace fairring {

struct RowArguments {
  void* out = nullptr;                    // the sums, packed
  const void* values = nullptr;           // the entries' rows, packed
  const std::uint32_t* order = nullptr;   // the entries, grouped by sum
  const std::uint32_t* begins = nullptr;  // where the entries of each sum begin in that order
  std::uint64_t rows = 0;                 // sums
  std::uint64_t entries = 0;
  std::uint64_t pieces = 0;        // of a row
  std::uint32_t threadsShift = 0;  // two to this power share a row
};

// Whether a row is processed sixteen bytes at a time.
FAIRRING_ANYWHERE inline bool rowsHaveVectors(const void* out, const void* values, std::uint64_t rowBytes) {
  const auto places = reinterpret_cast<std::uintptr_t>(out) | reinterpret_cast<std::uintptr_t>(values);
  return (places | rowBytes) % kVectorBytes == 0;
}

// No more threads than pieces, nor than the most, a power of two.
FAIRRING_ANYWHERE inline std::uint32_t threadsShiftFor(std::uint64_t pieces, std::uint32_t mostThreads) {
  std::uint32_t shift = 0;
  while ((std::uint64_t{2} << shift) <= pieces && (std::uint32_t{2} << shift) <= mostThreads) ++shift;
  return shift;
}

namespace FAIRRING_ISA {

template <class Type, class Operation, bool HasVectors>
class RowThread {
 public:
  // threads: a multiple of the threads that share a row.
  FAIRRING_ANYWHERE RowThread(const RowArguments& arguments, std::uint64_t thread, std::uint64_t threads)
      : arguments_(arguments), thread_(thread), threads_(threads) {}

  FAIRRING_ANYWHERE void run() const {
    const std::uint64_t sharing = std::uint64_t{1} << arguments_.threadsShift;
    const std::uint64_t rowsAtOnce = threads_ >> arguments_.threadsShift;
    for (std::uint64_t row = thread_ >> arguments_.threadsShift; row < arguments_.rows; row += rowsAtOnce) {
      for (std::uint64_t piece = thread_ & (sharing - 1); piece < arguments_.pieces; piece += sharing) sum(row, piece);
    }
  }

 private:
  using Element = Type::Element;
  using Wide = Type::Wide;
  static constexpr int kElements = HasVectors ? kVectorBytes / sizeof(Element) : 1;
  static constexpr int kAhead = 4;  // entries whose pieces are read before they are added

  union Piece {
    Words words;
    Element elements[kElements];
  };

  FAIRRING_ANYWHERE Piece read(std::uint64_t place, std::uint64_t piece) const {
    const std::uint64_t at = arguments_.order[place] * arguments_.pieces + piece;
    Piece read;
    if constexpr (HasVectors) {
      read.words = static_cast<const Words*>(arguments_.values)[at];
    } else {
      read.elements[0] = static_cast<const Element*>(arguments_.values)[at];
    }
    return read;
  }

  FAIRRING_ANYWHERE void write(std::uint64_t row, std::uint64_t piece, const Wide (&held)[kElements]) const {
    const std::uint64_t at = row * arguments_.pieces + piece;
    Piece written;
    FAIRRING_UNROLL
    for (int e = 0; e < kElements; ++e) written.elements[e] = Type::narrow(held[e]);
    if constexpr (HasVectors) {
      static_cast<Words*>(arguments_.out)[at] = written.words;
    } else {
      static_cast<Element*>(arguments_.out)[at] = written.elements[0];
    }
  }

  FAIRRING_ANYWHERE static void add(Wide (&held)[kElements], const Piece& piece) {
    FAIRRING_UNROLL
    for (int e = 0; e < kElements; ++e) held[e] = Operation{}(held[e], Type::widen(piece.elements[e]));
  }

  FAIRRING_ANYWHERE void sum(std::uint64_t row, std::uint64_t piece) const {
    std::uint64_t place = arguments_.begins[row];
    const std::uint64_t end = row + 1 < arguments_.rows ? arguments_.begins[row + 1] : arguments_.entries;
    const Piece first = read(place++, piece);
    Wide held[kElements];
    FAIRRING_UNROLL
    for (int e = 0; e < kElements; ++e) held[e] = Type::widen(first.elements[e]);
    for (; place + kAhead <= end; place += kAhead) {
      Piece ahead[kAhead];
      FAIRRING_UNROLL
      for (int n = 0; n < kAhead; ++n) ahead[n] = read(place + n, piece);
      FAIRRING_UNROLL
      for (const Piece& next : ahead) add(held, next);
    }
    for (; place < end; ++place) add(held, read(place, piece));
    write(row, piece, held);
  }

  const RowArguments& arguments_;
  const std::uint64_t thread_;
  const std::uint64_t threads_;
};

}  // namespace FAIRRING_ISA
}  // namespace fairring
