#include "base/loaded_function.h"

#include <dlfcn.h>

#include "base/error.h"

namespace fairring {
namespace {

// torch's library for CUDA: a look-up in it goes on in the libraries that it is linked to, so it finds torch's CUDA and
// NCCL even if the process has others too.
void* torchsCuda() {
  static void* const library = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  return library;
}

const char*& firstMissing() {
  static const char* name = nullptr;
  return name;
}

}  // namespace

// Programs without torch have CUDA preloaded.
LoadedFunction::LoadedFunction(const char* name) noexcept
    : address_(::dlsym(torchsCuda() != nullptr ? torchsCuda() : RTLD_DEFAULT, name)) {
  if (address_ == nullptr && firstMissing() == nullptr) firstMissing() = name;
}

std::string LoadedFunction::whyMissing() {
  if (firstMissing() == nullptr) return {};
  if (torchsCuda() == nullptr) return "this torch has no CUDA";
  return concat("the CUDA or NCCL of this torch has no ", firstMissing());
}

}  // namespace fairring
