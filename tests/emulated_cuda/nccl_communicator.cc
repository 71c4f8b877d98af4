#include "nccl_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <utility>

#include "emulated.h"
#include "nccl_reduction.h"
#include "settings.h"

namespace emulated {
namespace {

constexpr std::size_t kBufferBytes = 64 << 10;     // that NCCL takes on the device for a communicator
constexpr std::size_t kConnectionBytes = 4 << 10;  // and when it first makes a call of a kind and a size
constexpr std::size_t kLargeBytes = 256 << 10;     // of a call for which it takes another algorithm

// A broadcast and a reduction to one rank go around a ring, whatever their size.
bool hasSeveralAlgorithms(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::ReduceScatter || kind == Kind::AllGather;
}

class OnDevice {
 public:
  explicit OnDevice(int device) {
    cudaGetDevice(&before_);
    if (before_ != device) cudaSetDevice(device);
    isChanged_ = before_ != device;
  }
  ~OnDevice() {
    if (isChanged_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool isChanged_ = false;
};

// What NCCL wants all ranks to do in one order, for communicators that they share: in a file of the process's own.
void noteLaunch(const std::string& communicator, const std::vector<Call>& calls) {
  if (settings().launches.empty()) return;
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  std::ofstream file(settings().launches + "/" + std::to_string(getpid()), std::ios::app);
  file << communicator;
  for (const Call& call : calls) file << ' ' << static_cast<int>(call.kind) << ':' << call.count;
  file << '\n';
}

}  // namespace

Communicator::Communicator(std::string name, int rank, int ranks, int device, bool isBlocking, bool isSlow)
    : name_(std::move(name)), rank_(rank), ranks_(ranks), device_(device), isBlocking_(isBlocking), isSlow_(isSlow) {
  if (ranks > kMostRanks) fatal("NCCL: %d ranks, at most %d are emulated", ranks, kMostRanks);
}

// task: false where an abort has ended it.
ncclResult_t Communicator::perform(std::function<bool()> task) {
  {
    const std::lock_guard lock(mutex_);
    ++tasks_;
  }
  const auto run = [this, task = std::move(task)] {
    const ncclResult_t result = task() ? ncclSuccess : ncclInternalError;
    state_ = result;
    const std::lock_guard lock(mutex_);
    --tasks_;
    changed_.notify_all();
    return result;
  };
  if (isBlocking_) {
    const OnDevice on(device_);
    return run();
  }
  state_ = ncclInProgress;
  std::thread([self = shared_from_this(), run] {
    cudaSetDevice(self->device_);
    pauseOfSeed();
    run();
  }).detach();
  return ncclInProgress;
}

ncclResult_t Communicator::join() {
  return perform([this] { return attach(); });
}

bool Communicator::attach() {
  cudaMalloc(&buffer_, kBufferBytes);
  auto shared = std::make_unique<SharedState>(name_, rank_, ranks_);
  const bool all = shared->await([&shared] { return shared->hasAll(); }, [this] { return isAborted(); });
  if (!all || rank_ == 0) shared->remove();
  const std::lock_guard lock(mutex_);
  shared_ = std::move(shared);
  return all;
}

ncclResult_t Communicator::issue(std::vector<Call> calls) {
  if (state_ == ncclInProgress) return ncclInvalidUsage;
  return perform([this, calls = std::move(calls)] { return enqueue(calls); });
}

// NCCL takes memory and connects the ranks when it first makes a call of a kind, and again where its size wants another
// algorithm; in a capture too.
bool Communicator::connect(const std::vector<Call>& calls) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  bool isConnected = true;
  for (const Call& call : calls) {
    const bool isLarge = hasSeveralAlgorithms(call.kind) && call.count * bytesOf(call.type) > kLargeBytes;
    if (!connected_.emplace(call.kind, isLarge).second) continue;
    void* memory = nullptr;
    cudaMalloc(&memory, kConnectionBytes);
    cudaFree(memory);
    const bool isOfAll = call.kind != Kind::Send && call.kind != Kind::Receive;
    if (isOfAll) isConnected = isConnected && shared_->meetToConnect([this] { return isAborted(); });
  }
  cudaThreadExchangeStreamCaptureMode(&mode);
  return isConnected;
}

bool Communicator::enqueue(const std::vector<Call>& calls) {
  const std::lock_guard issuing(issuing_);
  if (!connect(calls)) return false;
  noteLaunch(name_, calls);
  const cudaStream_t stream = calls.front().stream;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  if (stream != nullptr) cudaStreamIsCapturing(stream, &capturing);
  auto self = shared_from_this();
  if (capturing != cudaStreamCaptureStatusNone) {
    emulated::enqueue(stream, "NCCL, captured", [self, calls, held = hold()] { self->run(calls); });
    return true;
  }
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = issued_++;
  emulated::enqueue(stream, "NCCL", [self, number, calls] { self->runInTurn(number, calls); });
  return true;
}

// As long as somebody has it, as graphs do that have captured a call: NCCL ends no communicator before.
std::shared_ptr<void> Communicator::hold() {
  const std::lock_guard lock(mutex_);
  ++holds_;
  return {nullptr, [self = shared_from_this()](void*) {
            const std::lock_guard dropping(self->mutex_);
            --self->holds_;
            self->changed_.notify_all();
          }};
}

void Communicator::runInTurn(std::uint64_t number, const std::vector<Call>& calls) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == number; });
  }
  run(calls);
  const std::lock_guard lock(mutex_);
  ++ended_;
  changed_.notify_all();
}

void Communicator::run(const std::vector<Call>& calls) {
  if (isSlow_ && settings().ncclLateMicroseconds > 0) usleep(static_cast<useconds_t>(settings().ncclLateMicroseconds));
  std::vector<Call> letters;
  for (const Call& call : calls) {
    if (isAborted()) return;
    if (call.kind == Kind::Send || call.kind == Kind::Receive) {
      letters.push_back(call);
    } else {
      collective(call);
    }
  }
  if (!letters.empty()) pointToPoint(letters);
}

ncclResult_t Communicator::finalize() {
  return perform([this] {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return (ended_ == issued_ && holds_ == 0) || isAborted(); });
    return true;
  });
}

void Communicator::abort() {
  aborted_ = true;
  const std::lock_guard lock(mutex_);
  if (shared_ != nullptr) shared_->notify();
  changed_.notify_all();
}

void Communicator::release() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_ == 0 && ended_ == issued_ && holds_ == 0; });
  lock.unlock();
  const OnDevice on(device_);
  cudaFree(std::exchange(buffer_, nullptr));
}

int Communicator::addFactor(double factor) {
  const std::lock_guard lock(mutex_);
  factors_.push_back(factor);
  return ncclNumOps + static_cast<int>(factors_.size()) - 1;
}

double Communicator::factorOf(int operation) const {
  return operation < ncclNumOps ? 1 : factors_.at(static_cast<std::size_t>(operation - ncclNumOps));
}

ncclResult_t Communicator::split(int color, int key, bool isBlocking,
                                 const std::function<void(std::shared_ptr<Communicator>)>& made) {
  if (state_ == ncclInProgress) return ncclInvalidUsage;
  const int number = splits_++;
  perform([=, this] {
    made(splitNow(number, color, key, isBlocking));
    return true;
  });
  return ncclSuccess;  // though it may only have begun
}

std::shared_ptr<Communicator> Communicator::splitNow(int number, int color, int key, bool isBlocking) {
  const auto isOver = [this] { return isAborted(); };
  shared_->facts(rank_) = {.kind = static_cast<std::int64_t>(Kind::Split), .count = color, .type = key};
  if (!shared_->meet(isOver)) return nullptr;
  std::vector<std::pair<std::int64_t, int>> members;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (shared_->facts(rank).count == color) members.emplace_back(shared_->facts(rank).type, rank);
  }
  if (!shared_->meet(isOver) || color == NCCL_SPLIT_NOCOLOR) return nullptr;
  std::ranges::sort(members);
  const auto mine = std::ranges::find(members, rank_, &std::pair<std::int64_t, int>::second);
  const std::string name = name_ + "." + std::to_string(number) + "." + std::to_string(color);
  auto made = std::make_shared<Communicator>(name, static_cast<int>(mine - members.begin()),
                                             static_cast<int>(members.size()), device_, isBlocking, isSlow_);
  made->join();
  return made;
}

}  // namespace emulated
