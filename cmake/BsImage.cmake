# The target bs::image, for code that includes <bs/interop/image.h>, where libpng and libjpeg are found.
find_package(PNG QUIET)
find_package(JPEG QUIET)
if(PNG_FOUND AND JPEG_FOUND AND NOT TARGET bs::image)
  add_library(bs::image INTERFACE IMPORTED GLOBAL)
  target_link_libraries(bs::image INTERFACE bs::bs PNG::PNG JPEG::JPEG)
endif()
