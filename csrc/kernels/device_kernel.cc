#include "kernels/device_kernel.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/cuda_driver.h"
#include "base/cuda_error.h"
#include "kernels/device_arguments.h"
#include "kernels/device_images.h"

namespace fairring {
namespace {

constexpr int kOldestGeneration = 80;

int attributeOf(cudaDeviceAttr attribute, int device) {
  int value = 0;
  checkCuda(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute", device);
  return value;
}

int generationOf(int device) {
  return 10 * attributeOf(cudaDevAttrComputeCapabilityMajor, device) +
         attributeOf(cudaDevAttrComputeCapabilityMinor, device);
}

// The newest that the device runs. Null: there is none.
const DeviceImage* imageFor(int generation) {
  const DeviceImage* best = nullptr;
  for (const DeviceImage& image : deviceImages()) {
    const bool runs = image.generation <= generation && (image.isPtx || image.generation / 10 == generation / 10);
    if (runs && (best == nullptr || best->isPtx || (!image.isPtx && image.generation > best->generation)))
      best = &image;
  }
  return best;
}

// A call of the driver that has been there since CUDA 12.0.
template <class... Arguments>
auto required(const char* name, int device) {
  const auto call = driverCall<Arguments...>(name, 12000);
  check(call != nullptr, ErrorKind::Configuration, "the driver of CUDA device ", device, " has no ", name,
        ": one of CUDA 12.0 or later has it");
  return call;
}

// Each image is loaded once and kept for the process; it has the functions of every device.
void* libraryOf(const DeviceImage& image, int device) {
  static std::mutex mutex;
  static std::map<const DeviceImage*, void*> loaded;
  const std::lock_guard lock(mutex);
  void*& library = loaded[&image];
  if (library != nullptr) return library;
  const auto load =
      required<void**, const void*, void*, void*, unsigned, void*, void*, unsigned>("cuLibraryLoadData", device);
  checkDriver(load(&library, image.bytes.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData",
              device);
  return library;
}

void* functionOf(void* library, const char* name, int device) {
  void* kernel = nullptr;
  checkDriver(required<void**, void*, const char*>("cuLibraryGetKernel", device)(&kernel, library, name),
              "cuLibraryGetKernel", device);
  void* function = nullptr;
  checkDriver(required<void**, void*>("cuKernelGetFunction", device)(&function, kernel), "cuKernelGetFunction", device);
  return function;
}

}  // namespace

std::string DeviceKernel::obstacle(int device) {
  try {
    const int generation = generationOf(device);
    if (generation < kOldestGeneration) {
      return concat("CUDA device ", device, " is of sm_", generation, ", and the kernels are for sm_",
                    kOldestGeneration, " and later");
    }
    return {};
  } catch (const Failure& failure) {
    return failure.error().text();
  }
}

DeviceKernel::DeviceKernel(const char* name, int device) : device_(device) {
  const CurrentDevice current(device);
  const DeviceImage* image = imageFor(generationOf(device));
  if (image == nullptr) throw Failure(makeError(ErrorKind::Configuration, obstacle(device)));
  function_ = functionOf(libraryOf(*image, device), name, device);
  // An older driver than that of CUDA 12.4 loads it as its function is asked for.
  if (const auto load = driverCall<void*>("cuFuncLoad", 12040); load != nullptr) {
    checkDriver(load(function_), "cuFuncLoad", device);
  }
  int perMultiprocessor = 0;
  const auto occupancy = required<int*, void*, int, std::size_t>("cuOccupancyMaxActiveBlocksPerMultiprocessor", device);
  checkDriver(occupancy(&perMultiprocessor, function_, kDeviceThreads, 0),
              "cuOccupancyMaxActiveBlocksPerMultiprocessor", device);
  const int blocks = perMultiprocessor * attributeOf(cudaDevAttrMultiProcessorCount, device);
  blocksAtOnce_ = static_cast<unsigned>(std::max(1, blocks));
}

void DeviceKernel::launch(unsigned blocks, void* arguments, cudaStream_t stream) const {
  const CurrentDevice current(device_);
  static const auto call = required<void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    cudaStream_t, void**, void**>("cuLaunchKernel", device_);
  checkDriver(call(function_, blocks, 1, 1, kDeviceThreads, 1, 1, 0, stream, &arguments, nullptr), "cuLaunchKernel",
              device_);
}

}  // namespace fairring
