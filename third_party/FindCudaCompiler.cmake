# nvcc, for the CUDA kernels: CUDACXX, CUDA_HOME, the PATH, /usr/local/cuda, or the wheel nvidia-cuda-nvcc beside torch.
# Optional: without it the package is CPU-only. Sets CMAKE_CUDA_COMPILER and the language CUDA. Needs TorchLibs.
set(CudaCompiler_FOUND FALSE)
if(NOT TorchLibs_CUDA)
  message(STATUS "torch ${TorchLibs_VERSION} is one without CUDA: building the CPU-only package")
  return()
endif()
get_filename_component(sitePackages "${TorchLibs_DIRECTORY}" DIRECTORY)
file(GLOB cudaWheels "${sitePackages}/nvidia/cu*/bin")
find_program(CMAKE_CUDA_COMPILER NAMES "$ENV{CUDACXX}" nvcc HINTS "$ENV{CUDA_HOME}/bin"
             PATHS /usr/local/cuda/bin ${cudaWheels} DOC "CUDA compiler")
if(NOT CMAKE_CUDA_COMPILER)
  if(TorchLibs_CUDA VERSION_LESS 13)  # the wheels of CUDA 12 have no nvcc
    set(way "install the toolkit of CUDA ${TorchLibs_CUDA}")
  else()
    set(way "${Python_EXECUTABLE} -m pip install 'nvidia-cuda-nvcc==${TorchLibs_CUDA}.*', or install the toolkit")
  endif()
  message(STATUS "No CUDA compiler: building the CPU-only package (for CUDA: ${way}, and set CUDACXX=<path to nvcc> "
                 "where it is not on the PATH)")
  return()
endif()
if(CMAKE_VERSION VERSION_LESS 3.26)
  message(STATUS "CMake ${CMAKE_VERSION} can't ask CUDA's compiler for C++20: building the CPU-only package (for CUDA: "
                 "${Python_EXECUTABLE} -m pip install 'cmake>=3.26')")
  return()
endif()
# One of each generation since sm_80, which later ones of it run too, and PTX of the last for those to come.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # torch's own: FindCudaRuntime
enable_language(CUDA)
set(CudaCompiler_FOUND TRUE)
message(STATUS "CUDA compiler: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
