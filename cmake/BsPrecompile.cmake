# bs_precompile(target headers...): the target's sources begin with these headers and the standard
# library's, compiled once. They then compile also where they forget to include one of them: so
# BS_PCH=ON is for builds of everything, such as CI's (see BsUnity.cmake). BS_PCH=TESTS does it for
# tests alone.
set(BS_PCH OFF CACHE STRING "Precompile headers (OFF, TESTS, ON): faster, but hides missing includes")

set(BS_STANDARD_HEADERS
    <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <compare> <cstdint> <cstdio>
    <cstring> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric>
    <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <tuple>
    <type_traits> <utility> <variant> <vector>)

macro(bs_precompiles result target)
  set(${result} OFF)
  if(BS_PCH STREQUAL TESTS)
    if(${target} MATCHES "^test_")
      set(${result} ON)
    endif()
  elseif(BS_PCH)
    set(${result} ON)
  endif()
endmacro()

function(bs_precompile target)
  bs_precompiles(wanted ${target})
  if(wanted)
    target_precompile_headers(${target} PRIVATE ${BS_STANDARD_HEADERS} ${ARGN})
  endif()
endfunction()

# bs_precompile_as(target other): the same headers as another target of the same options.
function(bs_precompile_as target other)
  bs_precompiles(wanted ${target})
  if(wanted)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
