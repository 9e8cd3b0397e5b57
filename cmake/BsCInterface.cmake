# libbs_c: the C interface as one shared library. It contains the rooms it needs and exports nothing
# but bs_*, so that it may be loaded beside any other C++ library.
if(NOT BS_BUILD_C)
  return()
endif()
file(GLOB c_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/c/*.cpp)
add_library(bs_c SHARED ${c_sources})
add_library(bs::c ALIAS bs_c)
set(c_exports ${PROJECT_SOURCE_DIR}/c/exports.map)
target_link_libraries(bs_c PRIVATE bs_kernels bs_compiler)
bs_unite(bs_c)
target_include_directories(bs_c INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                          $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_options(bs_c PRIVATE LINKER:--version-script=${c_exports} LINKER:--gc-sections)
set_target_properties(bs_c PROPERTIES LINK_DEPENDS ${c_exports} EXPORT_NAME c
                      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                      VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# The Python package runs from the source tree with $BS_LIBRARY; `--target wheel` packs it.
find_package(Python3 3.9 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT BUILD_SHARED_LIBS)  # a wheel has one library, with all in it
  add_custom_target(wheel COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/make_wheel.py
                                  ${PROJECT_VERSION} ${PROJECT_SOURCE_DIR}/python/bs
                                  $<TARGET_FILE:bs_c> ${PROJECT_BINARY_DIR}
                    DEPENDS bs_c VERBATIM)
endif()
