// Functions looked up in what the process has loaded: here without torch and CUDA.
#include "base/loaded_function.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fairring {
namespace {

TEST(LoadedFunction, IsFoundByItsName) {
  void* (*const found)(std::size_t) = LoadedFunction("malloc");
  EXPECT_EQ(found, &std::malloc);
}

TEST(LoadedFunction, IsNullAndTellsWhyIfItIsMissing) {
  int (*const missing)(int*) = LoadedFunction("cudaGetDeviceCount");
  EXPECT_EQ(missing, nullptr);
  EXPECT_EQ(LoadedFunction::whyMissing(), "this torch has no CUDA");
}

}  // namespace
}  // namespace fairring
