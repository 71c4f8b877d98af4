// How the streams of a device tell the loop that they have come to a point: each counts up a word of its own, in pinned
// memory, at which the loop looks. A driver may call no function of the host's while a thread waits in it for the
// device; and nobody calls the loop, so no lock of a driver's can keep it waiting.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/loop.h"
#include "device/accelerator.h"

namespace fairring {

// The loop's half: what is to be done when a word has come to a value. While anything is awaited the loop looks at the
// words again and again, each time after an eighth of what it has waited so far: what a device has been busy with for a
// millisecond is known a tenth later. On the loop only; made by a caller. It does not own the words: stop() ends all
// looks before their memory goes.
class ToldWords : public std::enable_shared_from_this<ToldWords> {
 public:
  using Word = Accelerator::Word;
  static constexpr std::size_t kDistance = 8;  // between two words, in words: a line of the processor's cache
  static constexpr std::chrono::microseconds kSoonest{20};
  static constexpr std::chrono::microseconds kLatest{500};

  ToldWords(Loop& loop, Word* words, std::size_t count) : loop_(loop), words_(words), awaited_(count) {}

  Word* word(std::size_t index) const { return words_ + index * kDistance; }
  // Values of one word in the order in which they come.
  void await(std::size_t index, Word value, std::function<void()> reached);
  void stop();  // for ever

 private:
  struct Awaited {
    Word value;
    std::function<void()> reached;
  };

  bool look(std::size_t index);
  void lookAtAll();
  void lookLater();

  Loop& loop_;
  Word* const words_;
  std::vector<std::deque<Awaited>> awaited_;
  Loop::Clock::time_point since_;  // when something last came, or was asked for
  bool willLook_ = false;
  bool stopped_ = false;
};

// The callers' half, one of them at a time. Owns the words, which outlive all that is enqueued: it ends after the
// accelerator.
class Tells {
 public:
  Tells(Accelerator& accelerator, Loop& loop);  // the loop outlives it

  // The loop does this, by ToldWords, when one of the accelerator's own streams has told so often.
  struct Expected {
    std::size_t index;
    Accelerator::Word value;
    std::function<void()> reached;
  };
  // The stream will tell once more.
  Expected expect(Accelerator::Stream stream, std::function<void()> reached);
  // Once the stream has completed all that it holds so far, it tells for the oldest expectation that is left.
  void tell(Accelerator& accelerator, Accelerator::Stream stream);
  const std::shared_ptr<ToldWords>& words() const { return words_; }

 private:
  struct Telling {
    Accelerator::Stream stream;
    Accelerator::Word expected = 0;
    Accelerator::Word told = 0;
  };
  Telling& of(Accelerator::Stream stream);

  const Accelerator::Memory memory_;
  std::vector<Telling> streams_;
  const std::shared_ptr<ToldWords> words_;
};

}  // namespace fairring
