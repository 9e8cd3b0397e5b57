# Decides whether the CUDA backend is built (BS_CUDA = AUTO, ON or OFF) and says so.
# Sets BS_WITH_CUDA. The toolkit is found also when nvcc is not on the PATH.
set(BS_WITH_CUDA OFF)
set(reason "BS_CUDA=OFF")
if(NOT BS_CUDA STREQUAL "OFF")
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(BS_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
    if(BS_NVCC)
      set(CMAKE_CUDA_COMPILER ${BS_NVCC})
    endif()
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # The GPU at hand where there is one. Else Hopper, and a form from which the driver compiles for
    # any other GPU from 8.0 on.
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE capability ERROR_QUIET RESULT_VARIABLE no_gpu)
    if(NOT no_gpu AND capability MATCHES "^([0-9]+)\\.([0-9])")
      set(architecture "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
      if(architecture GREATER_EQUAL 90)
        string(APPEND architecture "a")
      endif()
      set(CMAKE_CUDA_ARCHITECTURES ${architecture}-real)
    else()
      set(CMAKE_CUDA_ARCHITECTURES 90a-real)
      set(BS_CUDA_PORTABLE ON)
    endif()
    # It takes nvcc a third more time, so those who build for themselves don't wait for it.
    if(BS_CUDA_PORTABLE)
      list(APPEND CMAKE_CUDA_ARCHITECTURES 80-virtual)
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES} CACHE STRING "CUDA architectures")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 12.3 REQUIRED)
    set(BS_WITH_CUDA ON)
  elseif(BS_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BS_CUDA=ON, but no nvcc was found: install the CUDA toolkit, "
                        "or set CUDACXX or CMAKE_CUDA_COMPILER to the path of nvcc")
  else()
    set(reason "no nvcc on the PATH, in $CUDA_HOME or in /usr/local/cuda")
  endif()
endif()
if(BS_WITH_CUDA)
  message(STATUS "bs: CUDA backend on: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, "
                 "architectures ${CMAKE_CUDA_ARCHITECTURES}")
  # CMake 3.25 knows no C++20 for nvcc: it would pass no -std at all, so we pass it ourselves.
  set(cuda_options -std=c++20 --expt-relaxed-constexpr --extended-lambda -lineinfo
                   -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter)
  if(BS_WERROR)
    list(APPEND cuda_options -Werror=all-warnings)
  endif()
  target_compile_options(bs_compiler INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_options}>")
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "80-virtual")
    # Beside code for the GPU at hand there is some that lacks what came after 8.0.
    target_compile_definitions(bs_compiler INTERFACE
                               "$<$<COMPILE_LANGUAGE:CUDA>:BS_CUDA_PORTABLE=1>")
  endif()
else()
  message(STATUS "bs: CUDA backend off: ${reason}")
endif()
