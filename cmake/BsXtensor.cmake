# The target bs::xtensor, for code that includes <bs/interop/xtensor.h>, where xtensor is found. GCC
# must not match template template parameters as C++17 does: xtensor 0.24 picks wrong types then.
find_package(xtensor 0.24 QUIET CONFIG)
if(xtensor_FOUND AND NOT TARGET bs::xtensor)
  add_library(bs::xtensor INTERFACE IMPORTED GLOBAL)
  target_link_libraries(bs::xtensor INTERFACE bs::bs xtensor)
  target_compile_options(bs::xtensor INTERFACE
                         $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-new-ttp-matching>
                         $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-fno-new-ttp-matching>)
endif()
