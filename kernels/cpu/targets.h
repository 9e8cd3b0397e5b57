#pragma once
// Class numbers of rows, as losses take them.
#include <bs/kernels/dispatch.h>
#include <bs/lib/tensor.h>

#include <vector>

namespace bs::cpu {

/// Targets as int64, whatever they are kept in; those of ignored rows become -1.
inline std::vector<int64_t> read_targets(const Tensor& targets, int64_t classes, int64_t ignored) {
  std::vector<int64_t> out(static_cast<size_t>(targets.numel()));
  visit_index("cross_entropy", targets.dtype(), [&]<class I>(Type<I>) {
    const I* from = targets.data<I>();
    for (size_t row = 0; row < out.size(); ++row) {
      const auto target = static_cast<int64_t>(from[row]);
      BS_CHECK(target == ignored || (target >= 0 && target < classes),
               "cross_entropy: target {} of row {} is outside [0, {}) and is not ignore_index {}",
               target, row, classes, ignored);
      out[row] = target == ignored ? -1 : target;
    }
  });
  return out;
}

}  // namespace bs::cpu
