#include "device/told_words.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

namespace fairring {

void ToldWords::await(std::size_t index, Word value, std::function<void()> reached) {
  assert(loop_.isCurrent());
  if (stopped_) return;
  awaited_.at(index).push_back({value, std::move(reached)});
  since_ = loop_.now();
  if (!willLook_) lookLater();
}

void ToldWords::stop() {
  assert(loop_.isCurrent());
  stopped_ = true;
  for (auto& queue : awaited_) queue.clear();
}

bool ToldWords::look(std::size_t index) {
  bool found = false;
  std::deque<Awaited>& queue = awaited_[index];
  const auto hasCome = [&] {
    return !queue.empty() && std::atomic_ref(*word(index)).load(std::memory_order_acquire) >= queue.front().value;
  };
  while (hasCome()) {
    const Awaited next = std::move(queue.front());
    queue.pop_front();
    found = true;
    next.reached();
  }
  return found;
}

void ToldWords::lookAtAll() {
  willLook_ = false;
  bool found = false;
  for (std::size_t i = 0; i < awaited_.size(); ++i) found = look(i) || found;
  if (found) since_ = loop_.now();
  const bool isMore = std::ranges::any_of(awaited_, [](const auto& queue) { return !queue.empty(); });
  if (isMore && !willLook_) lookLater();
}

void ToldWords::lookLater() {
  willLook_ = true;
  const auto now = loop_.now();
  const auto wait = std::clamp<Loop::Clock::duration>((now - since_) / 8, kSoonest, kLatest);
  loop_.at(now + wait, [weak = weak_from_this()] {
    if (const auto words = weak.lock()) words->lookAtAll();
  });
}

Tells::Tells(Accelerator& accelerator, Loop& loop)
    : memory_(accelerator.pinned(accelerator.streams() * ToldWords::kDistance * sizeof(Accelerator::Word))),
      words_(std::make_shared<ToldWords>(loop, reinterpret_cast<Accelerator::Word*>(memory_.get()),
                                         accelerator.streams())) {
  for (std::size_t i = 0; i < accelerator.streams(); ++i) streams_.push_back({accelerator.stream(i)});
}

Tells::Telling& Tells::of(Accelerator::Stream stream) {
  const auto found = std::ranges::find(streams_, stream, &Telling::stream);
  assert(found != streams_.end());
  return *found;
}

Tells::Expected Tells::expect(Accelerator::Stream stream, std::function<void()> reached) {
  Telling& one = of(stream);
  return {static_cast<std::size_t>(&one - streams_.data()), ++one.expected, std::move(reached)};
}

void Tells::tell(Accelerator& accelerator, Accelerator::Stream stream) {
  Telling& one = of(stream);
  assert(one.told < one.expected);
  accelerator.write(stream, words_->word(static_cast<std::size_t>(&one - streams_.data())), ++one.told);
}

}  // namespace fairring
