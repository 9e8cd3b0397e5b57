#include <bs/kernels/cuda/gemm/matmul_description.h>

namespace bs::cuda {

GemmDescription describe_large_matmul(DType dtype, MatrixLayout a, MatrixLayout b,
                                      const GemmEpilogue& epilogue) {
  const Element e = element_of(dtype);
  const MathInstruction math{
      {64, 256, 16}, e, e, Element::f32, OpClass::warpgroup, MathOperation::multiply_add};
  return {.tile = {{128, 256, 64}, 4, {8, 1, 1}, math, {1, 1}},
          .a = {e, a, 8},
          .b = {e, b, 8},
          .d = {e, MatrixLayout::row_major, 8},
          .epilogue = epilogue};
}

}  // namespace bs::cuda
