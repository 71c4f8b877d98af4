# nvcc, for the CUDA kernels: CUDACXX, CUDA_HOME, the PATH, /usr/local/cuda. Optional: without it the package is
# CPU-only. Sets CMAKE_CUDA_COMPILER.
find_program(CMAKE_CUDA_COMPILER NAMES "$ENV{CUDACXX}" nvcc HINTS "$ENV{CUDA_HOME}/bin" PATHS /usr/local/cuda/bin
             DOC "CUDA compiler")
if(CMAKE_CUDA_COMPILER)
  set(CudaCompiler_FOUND TRUE)
  message(STATUS "CUDA compiler: ${CMAKE_CUDA_COMPILER}")
else()
  set(CudaCompiler_FOUND FALSE)
  message(STATUS "No CUDA compiler: building the CPU-only package (for CUDA install the toolkit and set "
                 "CUDACXX=<path to nvcc>)")
endif()
