# bs_embed_headers(target): gives the target the texts of the device headers as the table declared in
# kernels/cuda/jit/device_headers.h. What is compiled at run time needs no file then, neither of ours nor
# of the toolkit.
function(bs_embed_headers target)
  file(GLOB_RECURSE device RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/kernels/cuda/device/*.cuh)
  list(APPEND device lib/host_device.h lib/philox.h)  # random numbers, the same on both devices
  set(names "")
  set(files "")
  foreach(header ${device})
    list(APPEND names bs/${header})
    list(APPEND files ${PROJECT_SOURCE_DIR}/${header})
  endforeach()
  set(output ${PROJECT_BINARY_DIR}/device_headers.cpp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed.cmake)
  add_custom_command(OUTPUT ${output} DEPENDS ${files} ${script} VERBATIM
                     COMMENT "Embedding the device headers"
                     COMMAND ${CMAKE_COMMAND} "-DNAMES=${names}" "-DFILES=${files}"
                             -DOUTPUT=${output} -P ${script})
  target_sources(${target} PRIVATE ${output})
endfunction()
