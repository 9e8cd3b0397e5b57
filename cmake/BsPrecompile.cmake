# bs_precompile(target headers...): with BS_PCH=ON the target's sources begin with these headers and
# the standard library's, compiled once. They then compile also where they forget to include one of
# them: so this is for builds beside an ordinary one, such as those under sanitizers.
option(BS_PCH "Precompile headers: faster, but missing includes go unnoticed" OFF)

set(BS_STANDARD_HEADERS
    <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <compare> <cstdint> <cstdio>
    <cstring> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric>
    <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <tuple>
    <type_traits> <utility> <variant> <vector>)

function(bs_precompile target)
  if(BS_PCH)
    target_precompile_headers(${target} PRIVATE ${BS_STANDARD_HEADERS} ${ARGN})
  endif()
endfunction()

# bs_precompile_as(target other): the same headers as another target of the same options.
function(bs_precompile_as target other)
  if(BS_PCH)
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
