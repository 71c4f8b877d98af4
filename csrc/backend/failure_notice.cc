#include "backend/failure_notice.h"

#include <c10/util/Logging.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <utility>
#include <vector>

#include "backend/torch_key_value.h"

namespace fairring {
namespace {

constexpr std::chrono::seconds kLastWords{5};

// Behind the errors that other ranks have announced, of which the first counts. It waits for no answer, which would
// never come where the link to the store is cut. A store that can't append keeps the last error.
void announceIn(c10d::Store& store, const std::string& key, const std::string& text) {
  const std::string ended = text + Bootstrap::kErrorEnd;
  const std::vector<std::uint8_t> bytes(ended.begin(), ended.end());
  store.hasExtendedApi() ? store.append(key, bytes) : store.set(key, bytes);
}

// Once the other ranks have been told, by another of the completion threads: a store that does not answer is not waited
// for any longer.
[[noreturn]] void endProcess(Completion& completion, const std::function<void()>& tell, const std::string& text,
                             const char* why) {
  const auto told = std::make_shared<std::promise<void>>();
  completion.post([told, tell] {
    tell();
    told->set_value();
  });
  told->get_future().wait_for(kLastWords);
  std::fprintf(stderr, "fairring: %s; the process ends, as FAIRRING_ON_ERROR=%s\n", text.c_str(), why);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

FailureNotice::FailureNotice(StorePtr store, EndsProcess ends, OnFailed onFailed)
    : store_(std::move(store)), ends_(ends), onFailed_(std::move(onFailed)) {}

void FailureNotice::close() {
  std::unique_ptr<PatientThread> asks;
  {
    const std::lock_guard lock(asking_->mutex);
    asking_->isOpen = false;
    asks.swap(asks_);
  }
  if (asks) asks->endBy(PatientThread::Clock::now() + kPatienceWithStore);
}

void FailureNotice::keep(StorePtr connection) {
  const std::lock_guard lock(mutex_);
  connection_ = std::move(connection);
}

// Another rank's abort() is no error of its own.
bool FailureNotice::endsProcess(const Error& error) const {
  if (error.kind() == ErrorKind::Aborted) return false;
  return ends_.always || (ends_.withDevice && hasCallOnDevice_);
}

void FailureNotice::tell(const Error& error, const std::string& key, Completion& completion) {
  StorePtr connection;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(isTold_, true)) return;
    connection = connection_;
  }
  const bool endsProcess = this->endsProcess(error);
  const char* const why = ends_.always ? "exit says"
                                       : "auto says after calls on CUDA tensors, whose results nobody waits for on the "
                                         "host: what follows them could be saved; raise lets it go on";
  // No host waits for calls on a device: later work on it reads their results.
  if (hasCallOnDevice_ && !endsProcess) {
    LOG(ERROR) << "fairring: " << error.text() << "; what calls on CUDA tensors return is garbage, if not NaN";
  }
  completion.post(
      [connection, shared = store_, key, text = error.text(), onFailed = onFailed_, &completion, endsProcess, why] {
        onFailed(completion, endsProcess);
        const auto tell = [connection, shared, key, text] {
          try {
            // The shared connection may be waited on.
            if (shared) announceIn(*(connection ? connection : shared->clone()), key, text);
            // NOLINTNEXTLINE(bugprone-empty-catch): the store has gone with its rank; the neighbours know all the same
          } catch (const std::exception&) {
          }
        };
        endsProcess ? endProcess(completion, tell, text, why) : tell();
      });
}

void FailureNotice::lookForAnothers(const std::string& key, const BootstrapOptions& options,
                                    std::function<void(const Error&)> found) {
  const std::lock_guard lock(asking_->mutex);
  if (!asking_->isOpen) return;
  // If the link to the store is cut, the answer never comes, and torch's store has no question that can be broken off.
  // The loop that the answer goes to is there until close().
  asks_ = std::make_unique<PatientThread>([found = std::move(found), asking = asking_, store = store_, key, options] {
    Error failure;
    try {
      TorchKeyValue keys(store->clone());
      failure = Bootstrap::failureIn(keys, key, options);
      // NOLINTNEXTLINE(bugprone-empty-catch): the store has gone, and nobody can tell
    } catch (const std::exception&) {
    }
    const std::lock_guard answer(asking->mutex);
    if (asking->isOpen) found(failure);
  });
}

}  // namespace fairring
