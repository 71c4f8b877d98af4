#include "device/tells.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace fairring {

Tells::Tells(Accelerator& accelerator, Loop& loop)
    : loop_(loop),
      memory_(accelerator.pinned(accelerator.streams() * ToldWords::kDistance * sizeof(Accelerator::Word))),
      words_(std::make_shared<ToldWords>(loop, reinterpret_cast<Accelerator::Word*>(memory_.get()),
                                         accelerator.streams())) {
  for (std::size_t i = 0; i < accelerator.streams(); ++i) streams_.push_back({accelerator.stream(i)});
}

void Tells::tell(Accelerator& accelerator, Accelerator::Stream stream, std::function<void()> reached) {
  const auto found = std::ranges::find(streams_, stream, &Telling::stream);
  assert(found != streams_.end());
  const auto index = static_cast<std::size_t>(found - streams_.begin());
  const Accelerator::Word value = ++found->told;
  accelerator.write(stream, words_->word(index), value);
  loop_.post([words = words_, index, value, reached = std::move(reached)]() mutable {
    words->await(index, value, std::move(reached));
  });
}

}  // namespace fairring
