#include <bs/kernels/cuda/block_sparse_epilogue.h>
#include <bs/kernels/cuda/gemm_tables.h>

namespace bs::cuda {

std::string epilogue_key(const BlockSparseEpilogue* e) {
  return e ? key(e->expression) : std::string();
}

std::string epilogue_text(const GemmEpilogue& e, DType dtype, bool transposed) {
  return "namespace bs::cuda::device {\n" +
         to_source(e, dtype == f64 ? Element::f64 : Element::f32, transposed) +
         "}  // namespace bs::cuda::device\n";
}

device::BlockSparseEpilogueArguments epilogue_arguments(const BlockSparseEpilogue* e,
                                                        bool transposed) {
  device::BlockSparseEpilogueArguments out{};
  if (!e) return out;
  static_assert(GemmEpilogue::most_operands == std::extent_v<decltype(out.operands)>);
  static_assert(GemmEpilogue::most_scalars == std::extent_v<decltype(out.scalars.in_f64)>);
  for (size_t i = 0; i < e->scalars.size(); ++i) {
    out.scalars.in_f32[i] = static_cast<float>(e->scalars[i]);
    out.scalars.in_f64[i] = e->scalars[i];
  }
  for (size_t i = 0; i < e->operands.size(); ++i) {
    const Tensor& t = e->operands[i];
    constexpr int neighbours = 2;  // sums that a thread has side by side
    if (t.defined())
      out.operands[i] = gemm_operand(transposed ? t.transpose(1, 2) : t,
                                     e->expression.operands()[i].element, neighbours);
  }
  return out;
}

}  // namespace bs::cuda
