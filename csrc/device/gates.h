// The words behind the gates of one group's chains (device/accelerator.h): in pinned memory, a line of words for
// each slice in flight. The n-th slice uses line n mod kLines, and opens a gate by writing n + 1 to its word, so words
// only count up. A line is used again only when its slice has passed all its gates. Gates are named by steps of the
// plan. Gate 0: the slice has its staging. Gate s of a step on the rails: what the step brings is in staging. Written
// on the loop; where they are may be asked by any thread.
// One more word says that the group has failed: it is written before the gates open for ever, and who comes through one
// of them then poisons what it was to produce.
// The memory is the chain's alone: to give it back is a call of the device, so nothing that the loop holds owns it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/accelerator.h"

namespace fairring {

class Gates {
 public:
  using Word = Accelerator::Word;
  static constexpr std::size_t kLines = 64;
  static constexpr std::size_t kGates = 8;  // of a slice, at most; a line of the processor's cache
  static constexpr std::uint64_t kBytes = (kLines + 1) * kGates * sizeof(Word);

  explicit Gates(const Accelerator::Memory& words) : words_(reinterpret_cast<Word*>(words.get())) {}

  // Slices by their sequence numbers.
  const Word* word(std::uint64_t slice, std::size_t gate) const { return at(slice, gate); }
  static Word opened(std::uint64_t slice) { return slice + 1; }

  const Word* failed() const { return words_ + kLines * kGates; }  // zero: it has not

  void open(std::uint64_t slice, std::size_t gate);
  void failAndOpenAll();  // for ever, those of later slices too

 private:
  Word* at(std::uint64_t slice, std::size_t gate) const;

  Word* const words_;
};

}  // namespace fairring
