# Public headers of the rooms: all but those of the cpu/ and cuda/ folders.
#
# bs_add_umbrella(room BELOW room): writes <bs/room.h>, which includes the umbrella below and every
# public header of the room. They are written into the build, since the tree's root holds no header,
# and lie beside the tree's own headers once installed.
set(BS_UMBRELLA_DIR ${PROJECT_BINARY_DIR}/umbrella)

function(bs_public_headers room result)
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/${room}/*.h)
  list(FILTER headers EXCLUDE REGEX "/(cpu|cuda)/")
  set(${result} ${headers} PARENT_SCOPE)
endfunction()

function(bs_add_umbrella room)
  cmake_parse_arguments(ARG "" "BELOW" "" ${ARGN})
  bs_public_headers(${room} headers)
  if(ARG_BELOW)
    list(PREPEND headers ${ARG_BELOW}.h)
  endif()
  list(TRANSFORM headers REPLACE "(.+)" "#include <bs/\\1>")
  list(JOIN headers "\n" includes)
  file(CONFIGURE OUTPUT ${BS_UMBRELLA_DIR}/bs/${room}.h @ONLY
       CONTENT "#pragma once\n/** @file Everything public in ${room}/ and in the rooms below. */\n${includes}\n")
endfunction()
