// The loop's half of what streams tell (tells.h): words in pinned memory that streams count up, and what is to be done
// when one has come to a value. While anything is awaited the loop looks at the words again and again, each time after
// an eighth of what it has waited so far: what a device has been busy with for a millisecond is known a tenth later.
// Nobody calls the loop, so no lock of a driver's can keep it waiting. On the loop only; made by a caller. It does not
// own the words: stop() ends all looks before their memory goes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/loop.h"

namespace fairring {

class ToldWords : public std::enable_shared_from_this<ToldWords> {
 public:
  using Word = std::uint64_t;
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

}  // namespace fairring
