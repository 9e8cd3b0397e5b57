# Configures the tree where folders above it are called as some of its own are, have spaces, and
# characters of regular expressions: all sources are found, also those that are put into groups.
set(tree "${FOLDER}/cuda/kernels/cpu/a b/c++")
file(REMOVE "${tree}")
file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}/cuda/kernels/cpu/a b")
file(CREATE_LINK ${SOURCE} "${tree}" SYMBOLIC)
set(build "${FOLDER}/the build++")
execute_process(COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${tree} -B ${build} -DBS_CUDA=OFF
                        -DCMAKE_CXX_COMPILER=${COMPILER} -DBS_UNITY=ON -DBS_BUILD_TESTS=OFF
                        -DBS_BUILD_EXAMPLES=OFF -DBS_BUILD_BENCH=OFF
                        -DCMAKE_INSTALL_INCLUDEDIR=some/headers
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB groups "${build}/unity/bs_kernels_*.cpp")
set(text "")
foreach(group IN LISTS groups)
  file(READ ${group} part)
  string(APPEND text "${part}")
endforeach()
foreach(source kernels/softmax.cpp kernels/cpu/softmax.cpp)
  string(FIND "${text}" "#include \"${tree}/${source}\"" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${source} is in no group")
  endif()
endforeach()

# Who finds the installed package finds its headers where they go.
file(GLOB_RECURSE packages "${build}/CMakeFiles/Export/*bsTargets.cmake")
file(READ "${packages}" text)
if(NOT text MATCHES "bs::lib PROPERTIES[^)]*/some/headers\"")
  message(FATAL_ERROR "bs::lib does not name some/headers")
endif()
