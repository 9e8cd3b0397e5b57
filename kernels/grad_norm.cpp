#include <bs/kernels/grad_norm.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/changes.h>

#include <vector>

namespace bs {

namespace {

/// The tensors that have elements, all on one device.
std::vector<Tensor> present(const char* op, std::span<const Tensor> gradients) {
  std::vector<Tensor> out;
  out.reserve(gradients.size());
  for (const Tensor& g : gradients) {
    if (!g.defined()) continue;
    BS_CHECK(is_floating(g.dtype()), "{}: gradient of dtype {}", op, g.dtype());
    if (!out.empty()) check_same_device(op, out.front(), g);
    if (g.numel() > 0) out.push_back(g);
  }
  return out;
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
  std::vector<Tensor> parts = present("grad_norm", gradients);
  if (parts.empty()) return zeros({}, f64);
  for (Tensor& g : parts) g = contiguous(g);
  Tensor norm = Tensor::empty({}, f64, parts.front().device());
  BS_DISPATCH(norm.device(), grad_norm, parts, norm);
  return norm;
}

void clip_gradients(std::span<const Tensor> gradients, const GradientClip& clip) {
  const std::vector<Tensor> parts = present("clip_gradients", gradients);
  if (parts.empty() || (!clip.norm.defined() && clip.scale == 1)) return;
  check_clip("clip_gradients", clip, parts.front().device());
  for (const Tensor& g : parts)
    BS_CHECK(g.is_contiguous(), "clip_gradients: shape {} with strides {} has gaps", g.shape(),
             g.strides());
  for (const Tensor& g : parts) note_change(g, "clip_gradients");
  BS_DISPATCH(parts.front().device(), clip_gradients, parts, clip);
}

}  // namespace bs
