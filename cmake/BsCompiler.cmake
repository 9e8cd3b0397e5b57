# Compiler settings shared by every target of ours, as usage requirements of `bs_compiler`.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

find_program(BS_CCACHE ccache)
if(BS_CCACHE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BS_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${BS_CCACHE})
endif()

add_library(bs_compiler INTERFACE)
target_compile_features(bs_compiler INTERFACE cxx_std_20)
set(host_warnings -Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Of what g++ has no warning for: loops that stay scalar, and `|` between comparisons, which lets
  # g++ vectorise them.
  list(APPEND host_warnings -Wno-sign-conversion -Wno-pass-failed -Wno-bitwise-instead-of-logical)
endif()
set(simd -fopenmp-simd)  # `omp simd` alone: threads are lib/team.h's
if(BS_WERROR)
  list(APPEND host_warnings -Werror)
endif()
set(march "")
if(BS_CPU_ARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|aarch64|arm64")
  set(march -march=$<IF:$<BOOL:$<TARGET_PROPERTY:BS_LEVEL>>,$<TARGET_PROPERTY:BS_LEVEL>,${BS_CPU_ARCH}>)
endif()
include(CheckCXXCompilerFlag)
# g++ 12 stores the constant {1.0, 1.0, 0.0, 0.0} as {1.0, 1.0, 1.0, 1.0} when it may use AVX-512 and
# moves wider than 128 bits: its test for a repeated element overlooks the zeros at the end.
check_cxx_compiler_flag("-mmove-max=128 -mstore-max=128" BS_HAS_MOVE_MAX)
if(BS_HAS_MOVE_MAX AND NOT CMAKE_CXX_CLANG_TIDY)  # clang-tidy reads our flags and knows not these
  list(APPEND march -mmove-max=128 -mstore-max=128)
endif()
# Tuned for no processor in particular, g++ writes `rep movs` for copies of up to 8 KiB: it begins so
# slowly that rows of a few hundred bytes take up to 1.5 times as long as by a call of memcpy.
check_cxx_compiler_flag("-mstringop-strategy=libcall" BS_HAS_STRINGOP_STRATEGY)
if(BS_HAS_STRINGOP_STRATEGY AND NOT BS_CPU_ARCH STREQUAL native AND NOT CMAKE_CXX_CLANG_TIDY)
  list(APPEND march -mstringop-strategy=libcall)
endif()
target_compile_options(bs_compiler INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${host_warnings};${simd};${march}>")
# What the loops of kernels/cpu need to be vectorised: no call of theirs reads errno or a floating
# point exception flag, and a branch may become a select.
# Under sanitizers nothing is vectorised.
set(BS_CPU_KERNEL_OPTIONS "")
if(NOT BS_SANITIZE)
  list(APPEND BS_CPU_KERNEL_OPTIONS -fno-math-errno -fno-trapping-math -O3)
  check_cxx_compiler_flag(-mprefer-vector-width=512 BS_HAS_VECTOR_WIDTH)
  if(BS_HAS_VECTOR_WIDTH)
    list(APPEND BS_CPU_KERNEL_OPTIONS -mprefer-vector-width=512)
  endif()
endif()
if(BS_SANITIZE)
  # An error found must fail the test that found it. Compiling takes longer than running: so nothing
  # is optimised but targets with loops over elements (BS_LOOPS), and these no more than at -O1. Tests of
  # threads have few elements.
  set(loops -O1)
  if(BS_SANITIZE STREQUAL thread)
    set(loops -O0)
  endif()
  set(sanitize $<IF:$<BOOL:$<TARGET_PROPERTY:BS_LOOPS>>,${loops},-O0> -fsanitize=${BS_SANITIZE})
  if(BS_SANITIZE_LESS)
    list(APPEND sanitize -fno-sanitize=${BS_SANITIZE_LESS})
  endif()
  list(APPEND sanitize -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_compile_options(bs_compiler INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  target_compile_definitions(bs_compiler INTERFACE BS_SANITIZED=1)
  target_link_options(bs_compiler INTERFACE ${sanitize})
endif()

# bs_templates_of_dtypes(sources...): loops that are compiled for so many dtypes that it takes longer
# than running them does. Under sanitizers they are not optimised.
function(bs_templates_of_dtypes)
  if(BS_SANITIZE AND loops STREQUAL "-O1")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -O0)
    set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)  # they are the target's, at -O1
  endif()
endfunction()

# bs_loop_sources(sources...): those of a target without BS_LOOPS that are long in loops of their own.
function(bs_loop_sources)
  if(BS_SANITIZE AND loops STREQUAL "-O1")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${loops})
    set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)  # they are the target's, at -O0
  endif()
endfunction()
