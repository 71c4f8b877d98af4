#include "emulated.h"

#include "calls.h"
#include "pinned.h"
#include "settings.h"

namespace emulated {

namespace {

int waitingInDriver = 0;  // threads; under the devices' mutex

}  // namespace

// As on an H200: while a thread waits for memory of the device or the host, others can enqueue nothing.
void enqueue(cudaStream_t stream, std::string what, std::function<void()> run) {
  Devices& devices = Devices::all();
  Devices::Lock lock = devices.lock();
  devices.await(lock, [] { return waitingInDriver == 0; });
  devices.enqueue(devices.stream(stream), {std::move(what), nullptr, std::move(run)});
}

void* reach(const void* address, std::size_t bytes, const char* what) {
  Devices& devices = Devices::all();
  const Devices::Lock lock = devices.lock();
  Device* holder = devices.holderOf(address);
  if (holder != nullptr) {
    const DeviceMemory::Allocation within = holder->memory->allocationAt(address);
    const std::byte* end = static_cast<const std::byte*>(address) + bytes;
    if (bytes > 0 && end > within.begin + within.bytes) {
      fatal("%s goes over %zu bytes at %p: its allocation has %zu from %p on", what, bytes, address, within.bytes,
            static_cast<void*>(within.begin));
    }
    return holder->memory->emulators(address);
  }
  if (const std::size_t pinned = pinnedBytesFrom(address); pinned > 0 && pinned < bytes)
    fatal("%s goes over %zu bytes at %p, of which %zu are pinned", what, bytes, address, pinned);
  return const_cast<void*>(address);
}

bool isReachable(const void* address) {
  Devices& devices = Devices::all();
  const Devices::Lock lock = devices.lock();
  return devices.holderOf(address) != nullptr || pinnedBytesFrom(address) > 0;
}

void pauseOfSeed() { pause(); }

std::mutex& driverMutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

void awaitInDriver(Devices::Lock& lock, int device) {
  std::unique_lock<std::mutex> driver;
  if (settings().driverLock) {
    lock.unlock();
    driver = std::unique_lock(driverMutex());
    lock.lock();
  }
  ++waitingInDriver;
  Devices::all().awaitDevice(lock, device);
  --waitingInDriver;
  Devices::all().notify();
}

}  // namespace emulated
