# The NCCL that torch loads, from the wheel beside torch: a second one must never be in the process. Optional: without
# it CUDA tensors stay with the stock backend. Defines NCCL::NCCL. Needs TorchLibs.
get_filename_component(sitePackages "${TorchLibs_DIRECTORY}" DIRECTORY)
find_path(NCCL_INCLUDE_DIR nccl.h PATHS "${sitePackages}/nvidia/nccl/include" NO_DEFAULT_PATH)
find_file(NCCL_LIBRARY libnccl.so.2 PATHS "${sitePackages}/nvidia/nccl/lib" NO_DEFAULT_PATH)
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  set(NCCL_FOUND TRUE)
  message(STATUS "NCCL: ${NCCL_LIBRARY}")
  if(NOT TARGET NCCL::NCCL)
    add_library(NCCL::NCCL SHARED IMPORTED)
    set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
                                                INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
  endif()
else()
  set(NCCL_FOUND FALSE)
  message(STATUS "No NCCL beside torch in ${sitePackages} (it comes with torch's CUDA wheels as nvidia-nccl)")
endif()
