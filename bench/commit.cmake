# Writes commit.h, at each build, when the commit is another than at the last one.
execute_process(COMMAND git describe --always --dirty --abbrev=10 --exclude=*
                WORKING_DIRECTORY ${ROOT} OUTPUT_VARIABLE commit ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(NOT failed EQUAL 0)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#pragma once\n#define BS_COMMIT \"${commit}\"\n" @ONLY)
