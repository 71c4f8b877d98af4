# Google Benchmark, for the benchmark of the reducing loops. Defines benchmark::benchmark.
find_package(benchmark QUIET)
set(GoogleBenchmark_FOUND ${benchmark_FOUND})
if(NOT benchmark_FOUND)
  message(STATUS "No Google Benchmark, so no fairring_kernels_bench: apt-get install libbenchmark-dev (elsewhere: "
                 "-Dbenchmark_ROOT=<prefix>)")
  return()
endif()
message(STATUS "Google Benchmark ${benchmark_VERSION}: ${benchmark_DIR}")
