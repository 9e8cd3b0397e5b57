#include <bs/kernels/accumulate.h>

#include <bs/kernels/copy.h>
#include <bs/lib/changes.h>
#include <bs/lib/overlap.h>

namespace bs {

void accumulate(const Tensor& total, const Tensor& part) {
  check_same_shape("accumulate", total, part);
  check_same_dtype("accumulate", total, part);
  check_same_device("accumulate", total, part);
  BS_CHECK(total.is_contiguous() && part.is_contiguous(), "accumulate: strides {} and {} for {}",
           total.strides(), part.strides(), total.shape());
  if (total.numel() == 0) return;
  if (ranges_overlap(total, part)) return accumulate(total, clone(part));
  note_change(total, "accumulate");
  BS_DISPATCH(total.device(), accumulate, part, total);
}

}  // namespace bs
