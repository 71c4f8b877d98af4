# What a layer is to the build: a target, and an include root of its own that holds a link to each directory it may
# include from. Include roots are private: linking a layer does not show its headers.

# fairring_include_root(<target> <layer>...): the target may include "<layer>/x.h" of these layers.
function(fairring_include_root target)
  set(root "${PROJECT_BINARY_DIR}/layers/${target}")
  file(REMOVE_RECURSE "${root}")
  file(MAKE_DIRECTORY "${root}")
  foreach(layer IN LISTS ARGN)
    set(parent csrc)
    if(layer STREQUAL simulation)  # which stands beside its tests
      set(parent tests)
    endif()
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${parent}/${layer}" "${root}/${layer}" SYMBOLIC)
  endforeach()
  target_include_directories(${target} PRIVATE "${root}")
  set_property(TARGET ${target} PROPERTY FAIRRING_SEES ${ARGN})
endfunction()

# fairring_library(<target> SOURCES <file>... SEES <layer>... [LINKS <library>...])
function(fairring_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;SEES;LINKS")
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    fairring_include_root(${target} ${arg_SEES})
    target_link_libraries(${target} PUBLIC ${arg_LINKS})
    set(first fairring_plan)
    if(target IN_LIST FAIRRING_FUZZED)
      set(first fairring_base)
      if(FAIRRING_FUZZERS)
        target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
      endif()
    endif()
    fairring_precompile(${target} ${first} ${FAIRRING_STANDARD_HEADERS})
    # Eight sources are compiled together: they share most headers.
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # it takes a source that is included for a header
      target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
    endif()
  else()  # headers only
    add_library(${target} INTERFACE)
    set_property(TARGET ${target} PROPERTY FAIRRING_SEES ${arg_SEES})
    target_link_libraries(${target} INTERFACE ${arg_LINKS})
  endif()
endfunction()

# The libraries that read what strangers send: the fuzz targets follow which of their branches an input takes.
set(FAIRRING_FUZZED fairring_base fairring_transport)

# The headers of the standard library that most files include. Parsing them is most of what a file costs the compiler.
set(FAIRRING_STANDARD_HEADERS <algorithm> <array> <atomic> <chrono> <condition_variable> <cstring> <deque> <functional>
    <future> <map> <memory> <mutex> <optional> <random> <ranges> <set> <span> <sstream> <string> <thread> <vector>)

# fairring_precompile(<target> <first> <header>...): once, by the target <first>, and used by the others, whose options
# are the same. Clang alone: GCC 12 crashes on what it has precompiled.
function(fairring_precompile target first)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    return()
  endif()
  if(target STREQUAL first)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${first})
  endif()
endfunction()
