# The NCCL that torch loads: a second one must never be in the process. Its header lies beside it, or where the CUDA
# toolkit's lie. Optional: without it the package is CPU-only. Defines NCCL::NCCL. Needs TorchLibs.
set(NCCL_FOUND FALSE)
if(NOT TorchLibs_NCCL)
  message(STATUS "No NCCL is loaded by this torch: NCCL comes with torch's CUDA wheels")
  return()
endif()
get_filename_component(ncclPrefix "${TorchLibs_NCCL}" DIRECTORY)
get_filename_component(ncclPrefix "${ncclPrefix}" DIRECTORY)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${ncclPrefix}/include" PATHS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
if(NOT NCCL_INCLUDE_DIR)
  string(REGEX MATCH "^[0-9]+" cudaMajor "${TorchLibs_CUDA}")
  message(STATUS "No nccl.h beside ${TorchLibs_NCCL} nor in the CUDA toolkit: pip install --force-reinstall "
                 "nvidia-nccl-cu${cudaMajor}, or set -DNCCL_INCLUDE_DIR=<directory>")
  return()
endif()
set(NCCL_FOUND TRUE)
message(STATUS "NCCL: ${TorchLibs_NCCL}")
if(NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL SHARED IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION "${TorchLibs_NCCL}"
                                              INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
