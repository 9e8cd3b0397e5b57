#include <bs/kernels/block_sparse_conv2d_gathered.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>
#include <bs/kernels/cuda/conv/conv2d_packed.h>
#include <bs/kernels/cuda/conv/conv2d_pieces.h>
#include <bs/lib/cuda/made_on.h>

#include <initializer_list>
#include <vector>

namespace bs::cuda {

namespace {

/// A plan with its lists on a device.
struct Listed {
  Conv2dPlan plan;
  Tensor words;  // i32
  Conv2dDevicePieces pieces;
  MadeOn made;
};

struct Key {
  Conv2dProblem problem;
  Conv2dKind kind;
  DType dtype;
  int device;
  bool operator==(const Key&) const = default;
};

Listed make(const Key& key, const Layout& layout, Stream stream) {
  const Device device = stream.device();
  BlockSparseConv2dPlan made =
      plan_block_sparse_conv2d(key.problem, key.kind, key.dtype, layout, gpu_of(device));
  Listed out{.plan = made.plan, .words = {}, .pieces = {}, .made = {}};
  if (made.plan.path != Conv2dPath::tiles) return out;
  static_assert(sizeof(device::Conv2dPiece) == 4 * sizeof(int32_t));
  const auto* const words = reinterpret_cast<const int32_t*>(made.pieces.pieces.data());
  std::vector<int32_t> all(words, words + 4 * made.pieces.pieces.size());
  all.insert(all.end(), made.pieces.offsets.begin(), made.pieces.offsets.end());
  out.words = upload(all, device);
  const auto* const there = out.words.data<int32_t>();
  out.pieces = {.block = layout.block(),
                .tiles = made.pieces.tiles,
                .offsets = there + 4 * made.pieces.pieces.size(),
                .pieces = reinterpret_cast<const device::Conv2dPiece*>(there)};
  return out;
}

/// Made once for a layout.
Kept<Listed> listed(const Conv2dProblem& d, Conv2dKind kind, DType dtype, const Layout& layout,
                    Stream stream) {
  const Key key{d, kind, dtype, stream.device().index()};
  return listed_on<Listed>(layout, key, stream, [&] { return make(key, layout, stream); });
}

bool runs(const Listed& listed, std::initializer_list<Tensor> tensors) {
  return listed.plan.path == Conv2dPath::tiles && are_aligned(tensors);
}

}  // namespace

void block_sparse_conv2d(const Conv2dProblem& d, const Tensor& x, const SparseTensor& weight,
                         const Tensor& bias, const Tensor& y, Stream stream) {
  const auto kept = listed(d, Conv2dKind::fprop, x.dtype(), *weight.layout, stream);
  if (!runs(*kept, {x, weight.values, y})) return GatheredConv2d{d}.forward(x, weight, bias, y);
  const Conv2dEpilogue epilogue{.bias = bias};
  const PackedResult result(y);
  launch_conv2d(d, conv2d_kernel_of(kept->plan.form, epilogue), kept->plan.slices,
                {.image = packed_image(x),
                 .filters = weight.values,
                 .pixels = result.packed(),
                 .operands = operands_of(epilogue, result.packed()),
                 .pieces = kept->pieces},
                stream);
  result.finish(stream);
}

void block_sparse_conv2d_backward_x(const Conv2dProblem& d, const Tensor& dy,
                                    const SparseTensor& weight, const Tensor& dx, Stream stream) {
  const auto kept = listed(d, Conv2dKind::dgrad, dy.dtype(), *weight.layout, stream);
  if (!runs(*kept, {dy, weight.values, dx})) return GatheredConv2d{d}.backward_x(dy, weight, dx);
  const PackedResult result(dx);
  launch_conv2d(d, conv2d_kernel_of(kept->plan.form, {}), kept->plan.slices,
                {.image = result.packed(),
                 .filters = weight.values,
                 .pixels = packed_image(dy),
                 .pieces = kept->pieces},
                stream);
  result.finish(stream);
}

void block_sparse_conv2d_backward_w(const Conv2dProblem& d, const Tensor& x, const Tensor& dy,
                                    const SparseTensor& dweight, Stream stream) {
  const auto kept = listed(d, Conv2dKind::wgrad, x.dtype(), *dweight.layout, stream);
  if (!runs(*kept, {x, dy, dweight.values})) return GatheredConv2d{d}.backward_w(x, dy, dweight);
  launch_conv2d(d, conv2d_kernel_of(kept->plan.form, {}), kept->plan.slices,
                {.image = packed_image(x),
                 .filters = dweight.values,
                 .pixels = packed_image(dy),
                 .pieces = kept->pieces},
                stream);
}

}  // namespace bs::cuda
