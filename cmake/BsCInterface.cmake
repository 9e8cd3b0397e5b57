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
target_include_directories(bs_c INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                          $<INSTALL_INTERFACE:include>)
target_link_options(bs_c PRIVATE LINKER:--version-script=${c_exports} LINKER:--gc-sections)
set_target_properties(bs_c PROPERTIES LINK_DEPENDS ${c_exports} EXPORT_NAME c
                      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                      VERSION ${PROJECT_VERSION}
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
