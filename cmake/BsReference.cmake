# `cmake --build BUILD --target reference`: the API reference as pages that need no server, where
# Doxygen is installed. A warning is an error.
find_package(Doxygen 1.9 QUIET)
if(DOXYGEN_FOUND)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
  add_custom_target(reference COMMAND Doxygen::doxygen ${PROJECT_BINARY_DIR}/Doxyfile
                    COMMENT "Writing reference/html/index.html" WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
endif()
