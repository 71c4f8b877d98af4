#include "device/enqueued_calls.h"

#include <utility>

namespace fairring {

void EnqueuedCalls::end() {
  if (calls_.empty()) return;  // it has failed meanwhile
  const Call call = std::move(calls_.front());
  calls_.pop_front();
  call.done({});
  if (onProgress) onProgress();
}

void EnqueuedCalls::fail(const Error& error) {
  words_->stop();
  for (const Call& call : std::exchange(calls_, {})) call.done(error);
}

}  // namespace fairring
