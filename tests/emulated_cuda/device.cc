#include "device.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "host_thread.h"
#include "settings.h"

namespace emulated {
namespace {

thread_local std::minstd_rand* pauses = nullptr;  // of the queue that this thread serves

}  // namespace

void pause() {
  static thread_local std::minstd_rand own(settings().seed);
  std::minstd_rand& random = pauses != nullptr ? *pauses : own;
  if (settings().lateMicroseconds <= 0 || random() % static_cast<unsigned>(settings().lateOneIn) != 0) return;
  usleep(static_cast<useconds_t>(random() % static_cast<unsigned>(settings().lateMicroseconds)));
}

Devices& Devices::all() {
  static Devices& devices = *new Devices;
  return devices;
}

Devices::Devices() : devices_(static_cast<std::size_t>(settings().devices)) {}

Device& Devices::use(int index) {
  Device& device = devices_[static_cast<std::size_t>(index)];
  if (device.memory != nullptr) return device;
  noteFirstUse();
  device.memory = std::make_unique<DeviceMemory>(settings().deviceBytes);
  create(index, cudaStreamDefault, 0)->isLegacy = true;
  return device;
}

Device* Devices::holderOf(const void* address, int* index) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].memory == nullptr || !devices_[i].memory->covers(address)) continue;
    if (index != nullptr) *index = static_cast<int>(i);
    return &devices_[i];
  }
  return nullptr;
}

Stream* Devices::stream(cudaStream_t handle) {
  const bool isDefault = handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
  return isDefault ? use(hostThread().device).streams.front().get() : reinterpret_cast<Stream*>(handle);
}

Stream* Devices::create(int index, unsigned flags, int priority) {
  auto stream = std::make_unique<Stream>();
  stream->device = index;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = nextId++;
  auto& streams = devices_[static_cast<std::size_t>(index)].streams;
  streams.push_back(std::move(stream));
  return streams.back().get();
}

// The legacy default stream and the blocking ones wait for each other.
std::function<bool()> Devices::afterOthers(Stream* stream, std::function<bool()> ready) {
  std::vector<std::pair<const Stream*, std::uint64_t>> before;
  for (const auto& other : use(stream->device).streams) {
    const bool ordered = other.get() != stream && stream->isBlocking() && other->isBlocking();
    if (ordered && (stream->isLegacy || other->isLegacy) && !other->isIdle())
      before.emplace_back(other.get(), other->enqueued);
  }
  if (before.empty()) return ready;
  return [before = std::move(before), ready = std::move(ready)] {
    return std::ranges::all_of(before, [](const auto& one) { return one.first->ended >= one.second; }) &&
           (!ready || ready());
  };
}

Queue* Devices::queueFor(Stream* stream) {
  if (stream->queue != nullptr) return stream->queue;
  Device& device = use(stream->device);
  if (device.queues.size() < static_cast<std::size_t>(settings().queues)) {
    auto queue = std::make_unique<Queue>(settings().seed * 7919 + static_cast<unsigned>(device.queues.size()) + 1);
    std::thread(&Devices::serve, this, queue.get(), stream->device).detach();
    device.queues.push_back(std::move(queue));
  }
  return stream->queue = device.queues[device.nextQueue++ % static_cast<std::size_t>(settings().queues)].get();
}

std::uint64_t Devices::enqueue(Stream* stream, Work work) {
  if (stream->capture != nullptr) {
    stream->capture->works.push_back(std::move(work));
    return stream->enqueued;
  }
  work.ready = afterOthers(stream, std::move(work.ready));
  Queue* queue = queueFor(stream);
  queue->items.push_back({stream, ++stream->enqueued, std::move(work)});
  queue->changed.notify_one();
  return stream->enqueued;
}

void Devices::serve(Queue* queue, int device) {
  pthread_setname_np(pthread_self(), "emulated queue");
  hostThread().device = device;
  pauses = &queue->random;
  Lock lock(mutex_);
  while (true) {
    queue->changed.wait(lock, [queue] { return !queue->items.empty(); });
    Queue::Item& item = queue->items.front();
    changed_.wait(lock, [&item] { return !item.work.ready || item.work.ready(); });
    lock.unlock();
    pause();
    if (item.work.run) item.work.run();
    item.work = {};
    lock.lock();
    item.stream->ended = item.number;
    queue->items.pop_front();
    changed_.notify_all();
  }
}

void Devices::awaitStream(Lock& lock, const Stream* stream) {
  await(lock, [stream, number = stream->enqueued] { return stream->ended >= number; });
}

void Devices::awaitDevice(Lock& lock, int device) {
  if (!isUsed(device)) return;
  std::vector<std::pair<const Stream*, std::uint64_t>> all;
  for (const auto& stream : devices_[static_cast<std::size_t>(device)].streams)
    all.emplace_back(stream.get(), stream->enqueued);
  await(lock,
        [&all] { return std::ranges::all_of(all, [](const auto& one) { return one.first->ended >= one.second; }); });
}

void Devices::endCapture(const Capture& capture) {
  for (const Device& device : devices_) {
    for (const auto& stream : device.streams) {
      if (stream->capture.get() == &capture) stream->capture = nullptr;
    }
  }
}

}  // namespace emulated
