// Markers for code that a CUDA compiler also compiles for the device, so that tests can run the device's code on the
// processor. For every other compiler they are empty.
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
