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
