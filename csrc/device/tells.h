// How the streams of a device tell the loop that they have come to a point: each counts up a word of its own, at which
// the loop looks (told_words.h). A driver may call no function of the host's while a thread waits in it for the device.
// Callers, one at a time. Owns the words, which outlive all that is enqueued: it ends after the accelerator.
#pragma once

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

  // On the loop, when all that the stream holds so far is complete. One of the accelerator's own streams.
  void tell(Accelerator& accelerator, Accelerator::Stream stream, std::function<void()> reached);
  const std::shared_ptr<ToldWords>& words() const { return words_; }

 private:
  struct Telling {
    Accelerator::Stream stream;
    Accelerator::Word told = 0;
  };

  Loop& loop_;
  const Accelerator::Memory memory_;
  std::vector<Telling> streams_;
  const std::shared_ptr<ToldWords> words_;
};

}  // namespace fairring
