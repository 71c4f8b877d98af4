#include "device/tells.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fairring {

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
