# The torch of the Python that this is built for, with the TensorPipe and pybind11 it ships. Defines
#   TorchLibs::Torch        libtorch_cpu (TensorPipe, c10d) and libc10
#   TorchLibs::TorchPython  the same, libtorch_python and Python
#   TorchLibs_VERSION, TorchLibs_CXX11_ABI
# torch's own CMake configuration is not used: that of a CUDA build fails where there is no CUDA toolkit, even if only
# CPU libraries are wanted.
# -DTorchLibs_ROOT=<directory>/torch takes a torch that is only unpacked instead: without its CUDA libraries it can't be
# imported, but it can be compiled and linked against.
find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_FOUND)
  message(FATAL_ERROR "Fairring needs Python 3.10 or later with its headers, found '${Python_EXECUTABLE}': "
                      "apt-get install python3-dev (another Python: -DPython_EXECUTABLE=<path>)")
endif()

if(TorchLibs_ROOT)
  file(STRINGS "${TorchLibs_ROOT}/version.py" version REGEX "^__version__ = ")
  string(REGEX REPLACE "^__version__ = '(.*)'$" "\\1" TorchLibs_VERSION "${version}")
  set(TorchLibs_DIRECTORY "${TorchLibs_ROOT}")
  set(TorchLibs_CXX11_ABI 1)  # as in all wheels of torch on PyPI since 2.6
# Importing torch takes seconds: asked once per Python.
elseif(NOT TorchLibs_PYTHON STREQUAL Python_EXECUTABLE OR NOT DEFINED TorchLibs_VERSION)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "import os, torch; print(torch.__version__, int(torch.compiled_with_cxx11_abi()), os.path.dirname(torch.__file__), sep=';')"
    OUTPUT_VARIABLE answer ERROR_VARIABLE error RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    message(FATAL_ERROR "Fairring needs PyTorch in ${Python_EXECUTABLE}: "
                        "${Python_EXECUTABLE} -m pip install 'torch>=2.11,<2.16'\n${error}")
  endif()
  list(GET answer 0 version)
  list(GET answer 1 abi)
  list(GET answer 2 directory)
  set(TorchLibs_VERSION "${version}" CACHE INTERNAL "")
  set(TorchLibs_CXX11_ABI "${abi}" CACHE INTERNAL "")
  set(TorchLibs_DIRECTORY "${directory}" CACHE INTERNAL "")
  set(TorchLibs_PYTHON "${Python_EXECUTABLE}" CACHE INTERNAL "")
endif()

set(torchFiles "")
foreach(library c10 torch_cpu torch_python)
  list(APPEND torchFiles "${TorchLibs_DIRECTORY}/lib/lib${library}.so")
endforeach()
foreach(file ${torchFiles} "${TorchLibs_DIRECTORY}/include/tensorpipe/tensorpipe.h"
             "${TorchLibs_DIRECTORY}/include/pybind11/pybind11.h")
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "torch ${TorchLibs_VERSION} has no ${file}: Fairring needs the wheel for Linux from PyPI: "
                        "${Python_EXECUTABLE} -m pip install --force-reinstall 'torch>=2.11,<2.16'")
  endif()
endforeach()

if(NOT TARGET TorchLibs::Torch)
  set(include "${TorchLibs_DIRECTORY}/include")
  list(GET torchFiles 0 c10)
  list(GET torchFiles 1 torchCpu)
  list(GET torchFiles 2 torchPython)
  add_library(TorchLibs::Torch INTERFACE IMPORTED)
  target_include_directories(TorchLibs::Torch SYSTEM INTERFACE "${include}" "${include}/torch/csrc/api/include")
  target_link_libraries(TorchLibs::Torch INTERFACE "${torchCpu}" "${c10}")
  # libtorch_cpu finds the CUDA libraries beside it by its own rpath, which the linker does not follow.
  target_link_options(TorchLibs::Torch INTERFACE LINKER:--allow-shlib-undefined)
  add_library(TorchLibs::TorchPython INTERFACE IMPORTED)
  target_link_libraries(TorchLibs::TorchPython INTERFACE TorchLibs::Torch "${torchPython}" Python::Module)
endif()
message(STATUS "torch ${TorchLibs_VERSION}: ${TorchLibs_DIRECTORY}")
set(TorchLibs_FOUND TRUE)
