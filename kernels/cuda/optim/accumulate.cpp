#include <bs/kernels/accumulate.h>
#include <bs/kernels/binary.h>

namespace bs::cuda {

void accumulate(const Tensor& part, const Tensor& total, Stream stream) {
  add(total, part, total, stream);
}

}  // namespace bs::cuda
