#include <bs/autograd/block_float.h>
#include <bs/autograd/recorded.h>
#include <bs/kernels/copy.h>

namespace bs {

Variable block_float(const Variable& x, BlockFloat format) {
  return record_linear("block_float", x, block_float(x.data(), format),
                       [](const auto& dy) { return dy; });
}

Variable round_to(const Variable& x, DType dtype) {
  return record_linear("round_to", x, cast(cast(x.data(), dtype), x.dtype()),
                       [](const auto& dy) { return dy; });
}

}  // namespace bs
