# bs_add_cpu_levels(target sources... LINK libraries...): compiles sources once for each instruction
# set of BS_CPU_LEVELS, and gives the target all of them. The functions that they define keep their
# names: each jumps to its twin of the highest level that the processor has. What headers define is
# kept apart, so that no code of a high level is taken in a lower one. See docs/getting_started.md.
function(bs_add_cpu_levels target)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  include(CheckCXXSourceCompiles)
  check_cxx_source_compiles("int main() { return __builtin_cpu_supports(\"x86-64-v3\"); }"
                            BS_HAS_CPU_SUPPORTS)
  if(NOT BS_HAS_CPU_SUPPORTS)
    message(FATAL_ERROR "BS_CPU_LEVELS=${BS_CPU_LEVELS} needs g++ 12 or later")
  endif()
  set(folder ${PROJECT_BINARY_DIR}/cpu_levels)
  set(names "")
  set(objects "")
  set(linked "")
  foreach(level IN LISTS BS_CPU_LEVELS)
    string(MAKE_C_IDENTIFIER ${level} name)
    add_library(bs_cpu_${name} OBJECT ${ARG_UNPARSED_ARGUMENTS})
    set_target_properties(bs_cpu_${name} PROPERTIES BS_LEVEL ${level} BS_LOOPS ON)
    target_compile_options(bs_cpu_${name} PRIVATE -fno-gnu-unique)  # objcopy keeps unique ones global
    target_link_libraries(bs_cpu_${name} PRIVATE bs_compiler ${ARG_LINK})
    target_include_directories(bs_cpu_${name} PRIVATE
                               $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
    file(GENERATE OUTPUT ${folder}/${name}.rsp
         CONTENT "\"$<JOIN:$<TARGET_OBJECTS:bs_cpu_${name}>,\"\n\">\"\n")  # a path may have spaces
    list(APPEND names ${name})
    list(APPEND objects $<TARGET_OBJECTS:bs_cpu_${name}>)
    list(APPEND linked ${folder}/${name}.o)
  endforeach()
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/cpu_levels.cmake)
  add_custom_command(
    OUTPUT ${linked} ${folder}/cpu_levels.cpp DEPENDS ${objects} ${script}
    COMMENT "Joining the CPU kernels of ${BS_CPU_LEVELS}"
    COMMAND ${CMAKE_COMMAND} "-DLEVELS=${BS_CPU_LEVELS}" "-DNAMES=${names}" -DFOLDER=${folder}
            -DLINKER=${CMAKE_LINKER} -DNM=${CMAKE_NM} -DOBJCOPY=${CMAKE_OBJCOPY} -P ${script}
    VERBATIM)
  set_source_files_properties(${linked} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(${target} PRIVATE ${linked} ${folder}/cpu_levels.cpp)
  target_compile_definitions(${target} PRIVATE BS_CPU_LEVELS=1)
endfunction()
