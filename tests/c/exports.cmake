# Fails unless the library exports functions bs_* and nothing else.
#   cmake -DNM=nm -DLIBRARY=libbs_c.so -P exports.cmake
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE text
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" lines "${text}")
set(number 0)
foreach(line IN LISTS lines)
  if(NOT line MATCHES " T bs_[a-z0-9_]+$")
    message(SEND_ERROR "exported besides the C interface: ${line}")
  endif()
  math(EXPR number "${number} + 1")
endforeach()
if(number LESS 40)
  message(SEND_ERROR "only ${number} functions are exported")
endif()
message(STATUS "${number} functions are exported")
