# Joins the objects of each level, FOLDER/NAME.rsp, into one, FOLDER/NAME.o, in which functions have
# the level behind their names and all else is local; and writes FOLDER/cpu_levels.cpp, which has a
# function of each plain name.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(index 0)
set(choice "")
set(listed "")
foreach(level name IN ZIP_LISTS LEVELS NAMES)
  run(${LINKER} -r --force-group-allocation -o ${FOLDER}/${name}.all.o @${FOLDER}/${name}.rsp)
  run(${NM} --extern-only --defined-only --format=posix ${FOLDER}/${name}.all.o)
  string(REGEX MATCHALL "[^\n]+ T [^\n]+" lines "${output}")
  list(TRANSFORM lines REPLACE " T .*" "")
  list(SORT lines)
  if(index EQUAL 0)
    set(functions ${lines})
  elseif(NOT "${lines}" STREQUAL "${functions}")
    message(FATAL_ERROR "${level} defines other functions than the levels before")
  endif()
  set(renamed ${lines})
  list(TRANSFORM renamed REPLACE "(.+)" "\\1 \\1.${name}")
  list(JOIN renamed "\n" renamed)
  file(WRITE ${FOLDER}/${name}.renamed "${renamed}\n")
  list(TRANSFORM lines APPEND ".${name}")
  list(JOIN lines "\n" kept)
  file(WRITE ${FOLDER}/${name}.kept "${kept}\n")
  run(${OBJCOPY} --redefine-syms=${FOLDER}/${name}.renamed ${FOLDER}/${name}.all.o
      ${FOLDER}/${name}.o)
  run(${OBJCOPY} --keep-global-symbols=${FOLDER}/${name}.kept ${FOLDER}/${name}.o)
  file(REMOVE ${FOLDER}/${name}.all.o)
  string(APPEND listed "    \"${level}\",\n")
  if(index GREATER 0)
    string(APPEND choice "  if (__builtin_cpu_supports(\"${level}\")) most = ${index};\n")
  endif()
  math(EXPR index "${index} + 1")
endforeach()

set(jumps "")
foreach(function IN LISTS functions)
  set(twins "")
  foreach(name IN LISTS NAMES)
    list(APPEND twins "${function}.${name}")
  endforeach()
  list(JOIN twins ", " twins)
  string(APPEND jumps "BS_TWINS(${function}, \"${twins}\")\n")
endforeach()
file(WRITE ${FOLDER}/cpu_levels.cpp "// Written by cpu_levels.cmake.
#include <cstdlib>
#include <cstring>

extern \"C\" {
[[gnu::visibility(\"hidden\")]] extern int bs_cpu_level;
int bs_cpu_level = 0;  // the lowest, until the constructor below has run
[[gnu::visibility(\"hidden\")]] extern const char* const bs_cpu_level_names[];
const char* const bs_cpu_level_names[] = {
${listed}};
}

namespace {

// The highest level that the processor has, or a lower one that $BS_CPU_LEVEL names.
[[gnu::constructor(101)]] void choose() {
  __builtin_cpu_init();
  int most = 0;
${choice}  const char* const wanted = std::getenv(\"BS_CPU_LEVEL\");
  for (int i = 0; wanted && i < most; ++i)
    if (std::strcmp(wanted, bs_cpu_level_names[i]) == 0) most = i;
  bs_cpu_level = most;
}

}  // namespace

// A function that jumps to its twin of the level, with all arguments as they are.
#define BS_TWINS(name, twins)                                    \\
  __asm__(\".text\\n.globl \" #name \"\\n.type \" #name \", @function\\n\" #name \":\\n.cfi_startproc\\n\" \\
          \"endbr64\\n\"                                           \\
          \"movslq bs_cpu_level(%rip), %r11\\n\"                   \\
          \"leaq .Ltwins.\" #name \"(%rip), %r10\\n\"              \\
          \"jmp *(%r10, %r11, 8)\\n\"                              \\
          \".cfi_endproc\\n.size \" #name \", . - \" #name \"\\n\"   \\
          \".section .data.rel.ro, \\\"aw\\\"\\n.balign 8\\n\"       \\
          \".Ltwins.\" #name \": .quad \" twins \"\\n.text\\n\");

${jumps}")
