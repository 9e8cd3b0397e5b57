# bs_unite(target): compiles the target's sources in groups: one file includes those of a group, so
# that what they include is read once. A group hides a missing include, and one change compiles all
# of it: so BS_UNITY=ON is for builds of everything, such as CI's, beside which the sources that
# changed are read one by one. BS_UNITY=ROOMS does it for the library, without its loops, and for the
# tests of kernels: they are to see these loops as they are compiled for users. Called once the sources
# have their properties.
set(BS_UNITY OFF CACHE STRING
    "Compile sources in groups (OFF, ROOMS, ON): faster, but hides missing includes")
set(BS_UNITY_SIZE 10 CACHE STRING "Most sources of a group")
if(BS_UNITY)
  find_program(BS_AWK awk REQUIRED)
  # Names that only a group's file sees together.
  target_compile_options(bs_compiler INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>
                         $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

function(bs_unite target)
  if(NOT BS_UNITY OR (BS_UNITY STREQUAL ROOMS AND
                      NOT target MATCHES "^bs_(lib|kernels|autograd|nn|c)$|^test_kernels$"))
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  set(kinds "")  # those of one group have the same options
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${source} is_generated)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
    # No build under sanitizers shows what meets in cuda/.
    if(is_generated OR path MATCHES "/cuda/" OR
       (BS_UNITY STREQUAL ROOMS AND path MATCHES "(^|/)kernels/cpu/"))
      continue()
    endif()
    get_property(options SOURCE ${source} PROPERTY COMPILE_OPTIONS)
    get_property(definitions SOURCE ${source} PROPERTY COMPILE_DEFINITIONS)
    string(MD5 kind "${options} ${definitions}")
    list(APPEND kinds ${kind})
    list(APPEND sources_${kind} ${source})
  endforeach()
  list(REMOVE_DUPLICATES kinds)
  set(count 0)
  foreach(kind IN LISTS kinds)
    math(EXPR count "${count} + 1")
    bs_unite_alike(${target} ${target}_${count} ${sources_${kind}})
  endforeach()
endfunction()

# The same for sources that have the options of the first. The groups' files are called `stem` and a
# number.
function(bs_unite_alike target stem first)
  set(root ${PROJECT_SOURCE_DIR})
  file(GLOB_RECURSE headers RELATIVE ${root} ${root}/lib/*.h ${root}/kernels/*.h
       ${root}/autograd/*.h ${root}/nn/*.h ${root}/c/*.h ${root}/interop/*.h ${root}/examples/*.h
       ${root}/tests/*.h)
  set(sources "")
  foreach(source ${first} ${ARGN})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${root})
    list(APPEND sources ${source})
  endforeach()
  execute_process(COMMAND ${BS_AWK} -v size=${BS_UNITY_SIZE} -f ${root}/cmake/unity.awk ${headers}
                          -- ${sources}
                  WORKING_DIRECTORY ${root} OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${lines}")
  set(numbers "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([0-9]+) (.+)" line ${line})
    list(APPEND numbers ${CMAKE_MATCH_1})
    string(APPEND includes_${CMAKE_MATCH_1} "#include \"${root}/${CMAKE_MATCH_2}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES numbers)
  foreach(number IN LISTS numbers)
    set(group ${CMAKE_CURRENT_BINARY_DIR}/unity/${stem}_${number}.cpp)
    file(CONFIGURE OUTPUT ${group} CONTENT "${includes_${number}}" @ONLY)
    foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS SKIP_PRECOMPILE_HEADERS)
      get_property(value SOURCE ${first} PROPERTY ${property})
      set_property(SOURCE ${group} PROPERTY ${property} ${value})
    endforeach()
    target_sources(${target} PRIVATE ${group})
  endforeach()
  set_source_files_properties(${first} ${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  # A new name may call for other groups.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${first} ${ARGN})
endfunction()
