# The CUDA runtime that torch loads, with the headers of the compiler: a second one must never be in the process, so the
# two have to be of the same major version. Defines CudaRuntime::CudaRuntime. Needs TorchLibs and CudaCompiler.
set(CudaRuntime_FOUND FALSE)
if(NOT TorchLibs_CUDART)
  message(STATUS "No CUDA runtime is loaded by this torch: building the CPU-only package")
  return()
endif()
string(REGEX MATCH "libcudart\\.so\\.([0-9]+)" matched "${TorchLibs_CUDART}")
set(cudaMajor "${CMAKE_MATCH_1}")
string(REGEX MATCH "^[0-9]+" compilerMajor "${CMAKE_CUDA_COMPILER_VERSION}")
if(NOT cudaMajor STREQUAL compilerMajor)
  message(STATUS "torch loads ${TorchLibs_CUDART}, but the CUDA compiler is ${CMAKE_CUDA_COMPILER_VERSION}: building the "
                 "CPU-only package (for CUDA take a compiler of CUDA ${cudaMajor}: CUDACXX=<path to its nvcc>)")
  return()
endif()
# CUB is headers alone, which come with the toolkit; of the wheels they are one of their own.
find_path(CUB_INCLUDE_DIR cub/version.cuh HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} PATH_SUFFIXES cccl)
if(NOT CUB_INCLUDE_DIR)
  message(STATUS "No cub/version.cuh beside the CUDA compiler: building the CPU-only package (for CUDA: "
                 "${Python_EXECUTABLE} -m pip install nvidia-cuda-cccl, of the compiler's version, or set "
                 "-DCUB_INCLUDE_DIR=<directory>)")
  return()
endif()
set(CudaRuntime_FOUND TRUE)
message(STATUS "CUDA runtime: ${TorchLibs_CUDART}")
# The compiler may name folders that are not there.
set(cudaHeaders "")
foreach(folder IN LISTS CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES)
  if(EXISTS "${folder}")
    list(APPEND cudaHeaders "${folder}")
  endif()
endforeach()
if(NOT TARGET CudaRuntime::CudaRuntime)
  add_library(CudaRuntime::CudaRuntime SHARED IMPORTED)
  set_target_properties(CudaRuntime::CudaRuntime PROPERTIES
    IMPORTED_LOCATION "${TorchLibs_CUDART}"
    INTERFACE_INCLUDE_DIRECTORIES "${cudaHeaders}"
    INTERFACE_COMPILE_DEFINITIONS FAIRRING_CUDA=1)
  target_link_libraries(CudaRuntime::CudaRuntime INTERFACE ${CMAKE_DL_LIBS})
endif()
