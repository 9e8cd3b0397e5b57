# Writes the table of kernels/cuda/jit/device_headers.h: NAMES and FILES are lists, OUTPUT a C++ source.
cmake_minimum_required(VERSION 3.25)

set(text "// Generated from the device headers.\n#include <bs/kernels/cuda/jit/device_headers.h>\n\n")
string(APPEND text "namespace bs::cuda {\n\nstd::span<const jit::Header> device_headers() {\n"
                   "  using namespace std::string_view_literals;\n"
                   "  static constexpr jit::Header headers[] = {\n")
foreach(name file IN ZIP_LISTS NAMES FILES)
  file(READ ${file} content)
  string(SHA256 hash "${content}")
  string(SUBSTRING ${hash} 0 32 hash)
  # The standard lets a compiler refuse literals beyond 64 KiB, and some do: neighbours are one. With
  # the suffix they know their lengths, to count which takes more steps than some compilers allow.
  string(LENGTH "${content}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${content}" ${at} 16000 piece)
    string(APPEND pieces "R\"bs~(${piece})bs~\"sv\n")
    math(EXPR at "${at} + 16000")
  endwhile()
  string(APPEND text "{\"${name}\",\n${pieces},\n\"${hash}\"},\n")
endforeach()
string(APPEND text "  };\n  return headers;\n}\n\n}  // namespace bs::cuda\n")
file(WRITE ${OUTPUT} "${text}")
