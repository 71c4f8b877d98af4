// Devices, their streams and hardware queues, and events. One mutex, that of Devices, guards all that stands here; each
// queue has a thread of its own, which runs its work without the mutex.
//
// A stream's work runs in order. Streams share hardware queues, in which each piece of work waits for all before it, so
// a stream can stand behind one that it has nothing to do with, as on a device.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memory.h"

namespace emulated {

// ready: asked under the mutex, again whenever something has ended; none: at once. run: without the mutex.
struct Work {
  std::string what;
  std::function<bool()> ready;
  std::function<void()> run;
};

// Work that a capture has taken in instead of running it, in the program's order, which is a legal one.
struct Capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  struct Stream* origin;
  std::vector<Work> works;
  std::vector<std::shared_ptr<void>> held;  // until the graph and all that was made of it have gone
};

struct Queue {
  explicit Queue(unsigned seed) : random(seed) {}

  struct Item {
    struct Stream* stream;
    std::uint64_t number;
    Work work;
  };
  std::deque<Item> items;
  std::condition_variable changed;
  std::minstd_rand random;
};

struct Stream {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool isLegacy = false;
  unsigned long long id = 0;
  std::uint64_t enqueued = 0;
  std::uint64_t ended = 0;
  Queue* queue = nullptr;  // from its first work on
  std::shared_ptr<Capture> capture;

  bool isBlocking() const { return (flags & cudaStreamNonBlocking) == 0; }
  bool isIdle() const { return ended == enqueued; }
};

struct Device {
  std::unique_ptr<DeviceMemory> memory;          // from its first use on
  std::vector<std::unique_ptr<Stream>> streams;  // the first is the legacy default stream
  std::vector<std::unique_ptr<Queue>> queues;
  std::size_t nextQueue = 0;
};

class Devices {
 public:
  using Lock = std::unique_lock<std::mutex>;

  static Devices& all();  // never destroyed: queues' threads go on until the process ends
  Lock lock() { return Lock(mutex_); }

  // The rest: under the mutex.
  int count() const { return static_cast<int>(devices_.size()); }
  bool isUsed(int device) const { return devices_[static_cast<std::size_t>(device)].memory != nullptr; }
  Device& use(int device);
  Device* holderOf(const void* address, int* index = nullptr);
  Stream* stream(cudaStream_t handle);  // of the calling thread's device where it is the default one
  Stream* create(int device, unsigned flags, int priority);
  std::uint64_t enqueue(Stream* stream, Work work);
  void notify() { changed_.notify_all(); }  // something has changed that work or a host may wait for
  void await(Lock& lock, const std::function<bool()>& until) { changed_.wait(lock, until); }
  void awaitStream(Lock& lock, const Stream* stream);
  void awaitDevice(Lock& lock, int device);
  void endCapture(const Capture& capture);  // in all streams that have joined it
  std::set<Capture*> captures;
  unsigned long long nextId = 1;

 private:
  Devices();
  std::function<bool()> afterOthers(Stream* stream, std::function<bool()> ready);
  Queue* queueFor(Stream* stream);
  void serve(Queue* queue, int device);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Device> devices_;
};

// A pause by the seed, as before each piece of work. Queues' threads.
void pause();

}  // namespace emulated
