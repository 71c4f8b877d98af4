# GoogleTest, for the C++ tests. Defines GTest::gtest_main.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  message(FATAL_ERROR "Fairring's C++ tests need GoogleTest: apt-get install libgtest-dev (elsewhere: "
                      "-DGTest_ROOT=<prefix>), or configure with -DFAIRRING_TESTS=OFF")
endif()
if(GTest_DIR)
  message(STATUS "GoogleTest ${GTest_VERSION}: ${GTest_DIR}")
else()
  message(STATUS "GoogleTest: ${GTEST_LIBRARY}")
endif()
set(GoogleTest_FOUND TRUE)
