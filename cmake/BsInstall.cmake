# What `cmake --install` puts down: the libraries, the public headers under include/bs, the umbrella
# headers, bs/version.h, and the package files that `find_package(bs)` reads.
include(GNUInstallDirs)
# Two packages: `dev` to build with, `tools` to run.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)
include(CMakePackageConfigHelpers)

set(rooms lib kernels autograd nn)
foreach(room ${rooms})
  bs_public_headers(${room} headers)
  foreach(header ${headers})
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/${header}
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bs/${folder})
  endforeach()
  set_target_properties(bs_${room} PROPERTIES EXPORT_NAME ${room})
  install(TARGETS bs_${room} EXPORT bsTargets)
endforeach()
if(BS_WITH_CUDA)
  # The dispatch in public headers names the device guard; CUDA's own headers are not needed for it.
  install(FILES ${PROJECT_SOURCE_DIR}/lib/cuda/runtime.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bs/lib/cuda)
endif()
install(DIRECTORY ${BS_UMBRELLA_DIR}/bs DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/interop/xtensor.h ${PROJECT_SOURCE_DIR}/interop/image.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bs/interop)
install(TARGETS bs EXPORT bsTargets)

if(BS_BUILD_C)
  set_target_properties(bs_c PROPERTIES INSTALL_RPATH $ORIGIN INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS bs_c EXPORT bsTargets)
  install(FILES ${PROJECT_SOURCE_DIR}/c/bs.h ${PROJECT_SOURCE_DIR}/c/gemm.h
                ${PROJECT_SOURCE_DIR}/c/layers.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bs/c)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/bs)
set(cudart_name cudart_static)
if(BUILD_SHARED_LIBS)
  set(cudart_name cudart)
endif()
install(EXPORT bsTargets NAMESPACE bs:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/bsConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/bsConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bsConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bsConfig.cmake ${PROJECT_BINARY_DIR}/bsConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/BsXtensor.cmake ${PROJECT_SOURCE_DIR}/cmake/BsImage.cmake
        DESTINATION ${package_dir})

# For builds without CMake: `pkg-config --cflags --libs bs`. The prefix is that of the installation,
# which may be named as late as at `cmake --install --prefix`.
if(BS_WITH_CUDA)
  set(pc_definitions " -DBS_WITH_CUDA=1")
  set(pc_libraries " -L${CUDAToolkit_LIBRARY_DIR} -l${cudart_name} -lrt")
  if(BUILD_SHARED_LIBS)
    string(APPEND pc_libraries " -Wl,-rpath,${CUDAToolkit_LIBRARY_DIR}")
  endif()
endif()
set(pc_template ${PROJECT_SOURCE_DIR}/cmake/bs.pc.in)
install(CODE "
  set(pc_includedir [[\${prefix}]])
  set(pc_libdir [[\${prefix}]])
  cmake_path(APPEND pc_includedir [[${CMAKE_INSTALL_INCLUDEDIR}]])  # an absolute one alone
  cmake_path(APPEND pc_libdir [[${CMAKE_INSTALL_LIBDIR}]])
  set(PROJECT_DESCRIPTION [[${PROJECT_DESCRIPTION}]])
  set(PROJECT_VERSION [[${PROJECT_VERSION}]])
  set(pc_definitions [[${pc_definitions}]])
  set(pc_libraries [[${pc_libraries}]])
  configure_file([[${pc_template}]] [[${PROJECT_BINARY_DIR}/bs.pc]] @ONLY)")
install(FILES ${PROJECT_BINARY_DIR}/bs.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
              ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})

# `cpack -G DEB` in the build folder makes libbs-dev, and bs-tools of the programs. For machines other
# than this one that folder is made by the preset `package`.
set(CPACK_PACKAGE_NAME bs)
set(CPACK_PACKAGE_CONTACT "the authors of bs <bs@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL dev)
if(TARGET bs-prebuild)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()
set(CPACK_COMPONENT_DEV_DESCRIPTION "Libraries, headers and documents of bs")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "bs-prebuild, which compiles kernels ahead of their use")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libbs-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "g++ (>= 4:12), zlib1g-dev")
if(BS_WITH_CUDA)
  set(version ${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR})
  set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS
      "cuda-cudart-dev-${version}, cuda-nvrtc-${version}, libcublas-${version}")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "cuda-nvrtc-${version}, libcublas-${version}")
endif()
set(CPACK_DEBIAN_DEV_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME bs-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libstdc++6 (>= 12), zlib1g")
set(CPACK_DEBIAN_TOOLS_FILE_NAME DEB-DEFAULT)
set(CPACK_THREADS 0)
include(CPack)
