// What stands in code that a CUDA compiler compiles for the device as well, so that the tests can run on the processor
// what the device runs. Every other compiler sees nothing there.
#pragma once

// Before a function.
#if defined(__CUDACC__)
#define FAIRRING_ANYWHERE __host__ __device__
#else
#define FAIRRING_ANYWHERE
#endif

// Before a loop of few rounds, whose arrays are then registers.
#if defined(__CUDA_ARCH__)
#define FAIRRING_UNROLL _Pragma("unroll")
#else
#define FAIRRING_UNROLL
#endif
