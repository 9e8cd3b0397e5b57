#pragma once
/** @file Words of the text that kernels are emitted as. */
#include <bs/lib/dtype.h>

namespace bs::cuda {

/** @brief Name of the C++ type of a floating dtype in device code. */
constexpr const char* device_type_name(DType dtype) {
  return dtype == f16    ? "__half"
         : dtype == bf16 ? "__nv_bfloat16"
         : dtype == f32  ? "float"
                         : "double";
}

}  // namespace bs::cuda
