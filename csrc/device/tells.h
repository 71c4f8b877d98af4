// How the streams of a device tell the loop that they have come to a point: each counts up a word of its own, at which
// the loop looks (told_words.h). A driver may call no function of the host's while a thread waits in it for the device.
// Callers, one at a time. Owns the words, which outlive all that is enqueued: it ends after the accelerator.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/loop.h"
#include "device/accelerator.h"
#include "device/told_words.h"

namespace fairring {

class Tells {
 public:
  Tells(Accelerator& accelerator, Loop& loop);  // the loop outlives it

  // What the loop is to do, by ToldWords, when one of the accelerator's own streams has told so often.
  struct Expected {
    std::size_t index;
    Accelerator::Word value;
    std::function<void()> reached;
  };
  // The stream will tell once more.
  Expected expect(Accelerator::Stream stream, std::function<void()> reached);
  // That all it holds so far is complete: what has been expected of it for the longest time.
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
