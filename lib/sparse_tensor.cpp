#include <bs/lib/sparse_tensor.h>

namespace bs {

void check_sparse(const char* op, const SparseTensor& s) {
  BS_CHECK(s.layout, "{}: a sparse tensor without a layout", op);
  BS_CHECK(s.values.defined(), "{}: a sparse tensor without values", op);
  const int block = s.layout->block();
  BS_CHECK(s.values.rank() >= 3 && s.values.size(-1) == block && s.values.size(-2) == block &&
               s.values.size(-3) == s.layout->nnz(),
           "{}: values {} do not fit the layout, which asks for [..., {}, {}, {}]", op,
           s.values.shape(), s.layout->nnz(), block, block);
  BS_CHECK(is_floating(s.values.dtype()),
           "{}: dtype {} is not supported; expected f64, f32, f16 or bf16", op, s.values.dtype());
}

}  // namespace bs
