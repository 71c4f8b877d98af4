# Google Benchmark, for the benchmarks of the C++ layers. Defines benchmark::benchmark.
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  message(FATAL_ERROR "Fairring's C++ benchmarks need Google Benchmark: apt-get install libbenchmark-dev (elsewhere: "
                      "-Dbenchmark_ROOT=<prefix>), or configure with -DFAIRRING_BENCHMARKS=OFF")
endif()
message(STATUS "Google Benchmark ${benchmark_VERSION}: ${benchmark_DIR}")
set(GoogleBenchmark_FOUND TRUE)
