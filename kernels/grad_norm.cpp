#include <bs/kernels/grad_norm.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/changes.h>

#include <algorithm>
#include <vector>

namespace bs {

namespace {

bool has_elements(const Tensor& g) { return g.defined() && g.numel() > 0; }

/// Checks that all that are defined are floating, and on the device of the first one with elements;
/// null where there is none.
const Tensor* first_of(const char* op, std::span<const Tensor> gradients) {
  const Tensor* first = nullptr;
  for (const Tensor& g : gradients) {
    if (!g.defined()) continue;
    BS_CHECK(is_floating(g.dtype()), "{}: gradient of dtype {}", op, g.dtype());
    if (first) check_same_device(op, *first, g);
    if (!first && has_elements(g)) first = &g;
  }
  return first;
}

/// The tensors that have elements, contiguous: those given where all are, for handles in `copies`
/// take longer than all checks.
std::span<const Tensor> present(std::span<const Tensor> gradients, std::vector<Tensor>& copies) {
  const auto is_present = [](const Tensor& g) { return has_elements(g) && g.is_contiguous(); };
  if (std::ranges::all_of(gradients, is_present)) return gradients;
  for (const Tensor& g : gradients)
    if (has_elements(g)) copies.push_back(contiguous(g));
  return copies;
}

}  // namespace

void check_clip(const char* op, const GradientClip& clip, Device device) {
  BS_CHECK(clip.scale > 0, "{}: a loss multiplied with {}", op, clip.scale);
  if (!clip.norm.defined()) return;
  BS_CHECK(clip.norm.numel() == 1 && clip.norm.dtype() == f64 && clip.norm.device() == device,
           "{}: norm {} of {} on {}, expected a scalar of f64 on {}", op, clip.norm.shape(),
           clip.norm.dtype(), clip.norm.device(), device);
  BS_CHECK(clip.max_norm > 0, "{}: max_norm {} is not positive", op, clip.max_norm);
}

Tensor grad_norm(std::span<const Tensor> gradients) {
  const Tensor* const first = first_of("grad_norm", gradients);
  if (!first) return zeros({}, f64);
  Tensor norm = Tensor::empty({}, f64, first->device());
  std::vector<Tensor> copies;
  BS_DISPATCH(norm.device(), grad_norm, present(gradients, copies), norm);
  return norm;
}

void clip_gradients(std::span<const Tensor> gradients, const GradientClip& clip) {
  const Tensor* const first = first_of("clip_gradients", gradients);
  if (!first || (!clip.norm.defined() && clip.scale == 1)) return;
  check_clip("clip_gradients", clip, first->device());
  for (const Tensor& g : gradients)
    BS_CHECK(!has_elements(g) || g.is_contiguous(),
             "clip_gradients: shape {} with strides {} has gaps", g.shape(), g.strides());
  std::vector<Tensor> copies;
  const std::span<const Tensor> parts = present(gradients, copies);
  for (const Tensor& g : parts) note_change(g, "clip_gradients");
  BS_DISPATCH(first->device(), clip_gradients, parts, clip);
}

}  // namespace bs
