include(GNUInstallDirs)  # where headers go

# bs_add_room(name LINK libraries...): one library for a room of the house; a shared one, where
# BUILD_SHARED_LIBS is on.
# `cuda/` folders and `.cu` files belong to the build only when the CUDA backend does.
function(bs_add_room room)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  # Relative ones: the folder that the tree lies in may have any name.
  set(root ${PROJECT_SOURCE_DIR})
  file(GLOB_RECURSE sources RELATIVE ${root} CONFIGURE_DEPENDS ${root}/${room}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/cuda/")
  if(BS_WITH_CUDA)
    file(GLOB_RECURSE cuda_sources RELATIVE ${root} CONFIGURE_DEPENDS ${root}/${room}/cuda/*.cpp
         ${root}/${room}/cuda/*.cu)
    list(APPEND sources ${cuda_sources})
  endif()
  set(cpu_sources ${sources})
  list(FILTER cpu_sources INCLUDE REGEX "^kernels/cpu/")
  set_source_files_properties(${cpu_sources} PROPERTIES COMPILE_OPTIONS "${BS_CPU_KERNEL_OPTIONS}")
  if(BS_CPU_KERNEL_OPTIONS)  # precompiled headers are of the room's options
    set_source_files_properties(${cpu_sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endif()
  if(NOT BS_SANITIZE)  # loops of a fixed length, which -O2 does not unroll
    set(plan_sources ${sources})
    list(FILTER plan_sources INCLUDE REGEX "/block_sparse/plan/")
    set_source_files_properties(${plan_sources} PROPERTIES COMPILE_OPTIONS -O3
                                                           SKIP_PRECOMPILE_HEADERS ON)
  endif()
  if(cpu_sources AND BS_CPU_LEVELS)
    list(FILTER sources EXCLUDE REGEX "^kernels/cpu/")
  endif()
  add_library(bs_${room} ${sources})
  if(cpu_sources AND BS_CPU_LEVELS)
    bs_add_cpu_levels(bs_${room} ${cpu_sources} LINK ${ARG_LINK})
  endif()
  target_include_directories(bs_${room} PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                               $<BUILD_INTERFACE:${BS_UMBRELLA_DIR}>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(bs_${room} PUBLIC cxx_std_20)
  target_link_libraries(bs_${room} PRIVATE $<BUILD_INTERFACE:bs_compiler> PUBLIC ${ARG_LINK})
  # Objects of static and of shared libraries are the same, so that who wants both compiles once.
  set_target_properties(bs_${room} PROPERTIES DEFINE_SYMBOL "")
  # Installed, the rooms find each other in their own folder.
  set_target_properties(bs_${room} PROPERTIES VERSION ${PROJECT_VERSION}
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                        INSTALL_RPATH $ORIGIN INSTALL_RPATH_USE_LINK_PATH ON)
  if(BS_WITH_CUDA)
    # One runtime for all rooms: with a static one each shared library would have its own.
    set(cudart $<BUILD_INTERFACE:CUDA::cudart$<$<NOT:$<BOOL:${BUILD_SHARED_LIBS}>>:_static>>)
    list(APPEND cudart $<INSTALL_INTERFACE:bs::cudart>)  # which bsConfig.cmake makes
    target_compile_definitions(bs_${room} PUBLIC BS_WITH_CUDA=1)
    target_link_libraries(bs_${room} PUBLIC ${cudart})
    # Template and internal-linkage device code is only ever used inside its own file.
    set_target_properties(bs_${room} PROPERTIES CUDA_SEPARABLE_COMPILATION OFF)
  endif()
endfunction()
