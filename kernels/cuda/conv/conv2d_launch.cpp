#include <bs/kernels/cuda/conv/conv2d_grid.h>
#include <bs/kernels/cuda/conv/conv2d_launch.h>
#include <bs/kernels/cuda/gemm/gemm_tables.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/kernels/fill.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <bit>

namespace bs::cuda {

using device::BlockSparseConv2dParams;
using device::Conv2dParams;
using device::Conv2dPortableParams;
using device::GemmParams;
using device::TensorMapWords;

namespace {

TensorMapElement map_element(DType dtype) {
  return dtype == f16 ? TensorMapElement::f16 : TensorMapElement::bf16;
}

/// A dense 16-bit tensor of three axes, innermost first, in boxes of 128 bytes.
TensorMapWords dense_map(const Tensor& t, const std::array<int64_t, 3>& dims, int box1, int box2) {
  TiledTensor tiled{.element = map_element(t.dtype()),
                    .address = t.data(),
                    .rank = 3,
                    .swizzle = TensorMapSwizzle::bytes_128};
  tiled.dims = {dims[0], dims[1], dims[2], 1, 1};
  tiled.strides = {0, dims[0] * 2, dims[0] * dims[1] * 2, 0, 0};
  tiled.box = {64, box1, box2, 1, 1};
  return std::bit_cast<TensorMapWords>(encode_tiled("conv2d", tiled));
}

TensorMapWords image_map(const Tensor& t, Im2colTensor walk, int pixels) {
  walk.pixels = pixels;
  walk.element = map_element(t.dtype());
  walk.address = t.data();
  return std::bit_cast<TensorMapWords>(encode_im2col("conv2d", walk));
}

const jit::Kernel& kernel_of(const Conv2dKernel& kernel, Device device) {
  static auto* const family = new jit::KernelFamily<std::string>;
  return family->get(kernel.key, device, [&] { return conv2d_source(kernel); });
}
const jit::Kernel& join_of(const Conv2dKernel& kernel, Device device) {
  static auto* const family = new jit::KernelFamily<std::string>;
  return family->get(kernel.key, device, [&] { return conv2d_join_source(kernel); });
}

bool on_warpgroups(const GemmDescription& d) { return d.tile.math.op_class == OpClass::warpgroup; }

/// One call on its way to the GPU.
class Launch {
 public:
  Launch(const Conv2dProblem& problem, const Conv2dKernel& kernel, int slices,
         const Conv2dTensors& tensors, Stream stream)
      : problem_(problem),
        kernel_(kernel),
        d_(kernel.description),
        tensors_(tensors),
        stream_(stream),
        slices_(slices),
        product_(conv2d_product(problem, kernel.kind)) {
    const auto [rows, columns, depth] = d_.tile.threadblock;
    if (gradient_of_blocks()) {  // tiles of pieces, side by side
      product_.rows = rows;
      product_.columns = int64_t{tensors.pieces.tiles} * columns;
    }
    tiles_ = product_.phases * ceil_div(product_.rows, rows) * ceil_div(product_.columns, columns);
    BS_CHECK(tiles_ * slices < (int64_t{1} << 31) && product_.rows < (int64_t{1} << 31),
             "conv2d: {} tiles are too many", tiles_);
  }

  void run() {
    if (of_blocks()) {
      BlockSparseConv2dParams params{};
      maps(params);
      params.offsets = tensors_.pieces.offsets;
      params.pieces = tensors_.pieces.pieces;
      params.block = tensors_.pieces.block;
      run(params, params.gemm, params.grid);
    } else if (on_warpgroups(d_)) {
      Conv2dParams params{};
      maps(params);
      run(params, params.gemm, params.grid);
    } else {
      Conv2dPortableParams params{};
      run(params, params, params.grid);
    }
  }

 private:
  bool of_blocks() const { return kernel_.loads.blocks; }
  bool gradient_of_blocks() const { return of_blocks() && kernel_.kind == Conv2dKind::wgrad; }

  template <class Params>
  void run(Params& params, GemmParams& gemm, device::Conv2dGrid& grid) {
    grid = conv2d_grid(problem_, kernel_.kind);
    describe(gemm);
    const Tensor partials = parts(gemm);
    launch(params);
    if (d_.split_k == SplitK::parallel && slices_ > 1) {
      jit::launch(join_of(kernel_, stream_.device()),
                  {.grid = dim3(static_cast<unsigned>(join_ctas(d_, tiles_, slices_))),
                   .block = dim3(join_threads)},
                  stream_, params);
    }
  }

  const Tensor& result() const {
    return kernel_.kind == Conv2dKind::fprop   ? tensors_.pixels
           : kernel_.kind == Conv2dKind::dgrad ? tensors_.image
                                               : tensors_.filters;
  }

  /// The filters in boxes of 64 channels and `filters` of them.
  TensorMapWords filter_map(int filters) const {
    const Conv2dProblem& p = problem_;
    const int64_t block = tensors_.pieces.block;
    if (of_blocks())
      return dense_map(tensors_.filters, {block, tensors_.filters.numel() / block, 1}, filters, 1);
    return dense_map(tensors_.filters, {p.c, p.r * p.s, p.k}, 1, filters);
  }

  void maps(Conv2dParams& params) const {
    const Conv2dProblem& p = problem_;
    const auto [rows, columns, depth] = d_.tile.threadblock;
    const Im2colTensor walk = conv2d_walk(p, kernel_.kind);
    switch (kernel_.kind) {
      case Conv2dKind::fprop:
        params.a = image_map(tensors_.image, walk, rows);
        params.b = filter_map(columns);
        break;
      case Conv2dKind::dgrad:
        params.a = image_map(tensors_.pixels, walk, rows);
        params.b = filter_map(depth);
        break;
      case Conv2dKind::wgrad:
        params.a = dense_map(tensors_.pixels, {p.k, p.n * p.p * p.q, 1}, depth, 1);
        params.b = image_map(tensors_.image, walk, depth);
        break;
    }
    if (stores_boxes(d_) && !kernel_.loads.phases && !gradient_of_blocks())
      params.d = dense_map(result(), {product_.columns, product_.rows, 1}, 16, 1);
  }

  void describe(GemmParams& gemm) const {
    const Conv2dProblem& p = problem_;
    const int64_t taps = p.r * p.s;
    gemm.tiles = static_cast<int>(tiles_);
    gemm.slices = slices_;
    gemm.problem.m = static_cast<int>(product_.rows);
    gemm.problem.n = static_cast<int>(product_.columns);
    gemm.problem.k = static_cast<int>(on_warpgroups(d_) ? product_.steps * 64 : product_.depth);
    switch (kernel_.kind) {
      case Conv2dKind::fprop:
        gemm.problem.a = {tensors_.image.data(), p.c, 0};
        gemm.problem.b = {tensors_.filters.data(), taps * p.c, 0};
        break;
      case Conv2dKind::dgrad:
        gemm.problem.a = {tensors_.pixels.data(), p.k, 0};
        gemm.problem.b = {tensors_.filters.data(), taps * p.c, 0};
        break;
      case Conv2dKind::wgrad:
        gemm.problem.a = {tensors_.pixels.data(), p.k, 0};
        gemm.problem.b = {tensors_.image.data(), p.c, 0};
        break;
    }
    for (size_t i = 0; i < tensors_.scalars.size(); ++i) {
      gemm.scalars.in_f32[i] = static_cast<float>(tensors_.scalars[i]);
      gemm.scalars.in_f64[i] = tensors_.scalars[i];
    }
    const int vector = std::min(16 / size_of(d_.d.element), 8);
    const int64_t columns = gradient_of_blocks() ? tensors_.pieces.block : product_.columns;
    gemm.operands[0] =
        gemm_operand(result().as_strided({1, result().numel() / columns, columns}, {0, columns, 1}),
                     d_.d.element, vector);
    for (size_t i = 0; i < tensors_.operands.size(); ++i)
      if (tensors_.operands[i].defined())
        gemm.operands[i + 1] =
            gemm_operand(tensors_.operands[i], d_.epilogue.operands()[i + 1].element, vector);
  }

  /// Memory of the sums of slices, and counters in front of it.
  Tensor parts(GemmParams& gemm) const {
    if (slices_ == 1 || d_.split_k == SplitK::none) return {};
    const bool serial = d_.split_k == SplitK::serial;
    const int64_t counters = serial ? round_up(tiles_, 4) : 0;
    const int64_t words = d_.tile.math.accumulator == Element::f64 ? 2 : 1;
    const int64_t sums = tiles_ * (serial ? 1 : slices_) * partial_elements(d_) * words;
    Tensor memory = Tensor::empty({counters + sums}, i32, stream_.device());
    if (serial) fill(memory.slice(0, 0, counters), 0);
    gemm.counters = static_cast<int*>(memory.data());
    gemm.partials = static_cast<int*>(memory.data()) + counters;
    return memory;
  }

  template <class Params>
  void launch(const Params& params) const {
    const jit::Kernel& kernel = kernel_of(kernel_, stream_.device());
    const int threads = d_.tile.threads(), cluster = d_.tile.cluster_ctas();
    int64_t ctas = tiles_ * slices_ * cluster;
    if (on_warpgroups(d_)) {
      kernel.allow(shared_bytes(d_), 1);
      const int64_t resident = int64_t{device_properties(stream_.device()).multiprocessors} *
                               kernel.ctas_per_sm(threads, shared_bytes(d_));
      ctas = std::max<int64_t>(std::min(resident / cluster, tiles_ * slices_), 1) * cluster;
    }
    jit::launch(kernel,
                {.grid = dim3(static_cast<unsigned>(ctas)),
                 .block = dim3(static_cast<unsigned>(threads)),
                 .cluster = cluster,
                 .shared_bytes = shared_bytes(d_)},
                stream_, params);
  }

  const Conv2dProblem& problem_;
  const Conv2dKernel& kernel_;
  const GemmDescription& d_;
  const Conv2dTensors& tensors_;
  Stream stream_;
  int slices_;
  Conv2dProduct product_;
  int64_t tiles_ = 0;
};

TileDescription warpgroup_tile(const Conv2dForm& f) {
  const Element e = element_of(f.dtype);
  const MathInstruction math{{64, f.tile.columns, 16},   e, e, Element::f32, OpClass::warpgroup,
                             MathOperation::multiply_add};
  return {{f.tile.rows, f.tile.columns, 64},
          f.tile.stages,
          {4 * f.tile.groups, 1, 1},
          math,
          {1, 1},
          f.cluster_k};
}

TileDescription portable_tile(const Conv2dForm& f) {
  const Element e = element_of(f.dtype);
  MathInstruction math{
      {16, 8, 16}, e, e, Element::f32, OpClass::tensor_op, MathOperation::multiply_add};
  if (f.dtype == f64) {
    math.shape = {8, 8, 4};
    math.accumulator = e;
  } else if (f.dtype == f32) {
    math.shape = {16, 8, 8};
    if (!f.tf32) math.operation = MathOperation::fast_f32;
  }
  return {{f.tile.rows, f.tile.columns, size_of(e) == 2 ? 32 : 16},
          3,
          {2, f.tile.columns > 64 ? 4 : 2, 1},
          math};
}

}  // namespace

Conv2dKernel conv2d_kernel(const Conv2dForm& f, const GemmEpilogue& epilogue) {
  const Element e = element_of(f.dtype);
  const bool filters = f.kind == Conv2dKind::wgrad;
  const int align_a = f.warpgroup ? 8 : f.kind == Conv2dKind::fprop ? f.align_c : f.align_k;
  GemmDescription d{
      .tile = f.warpgroup ? warpgroup_tile(f) : portable_tile(f),
      .a = {e, filters ? MatrixLayout::column_major : MatrixLayout::row_major, align_a},
      .b = {e, f.kind == Conv2dKind::fprop ? MatrixLayout::column_major : MatrixLayout::row_major,
            f.warpgroup ? 8 : f.align_c},
      .d = {e, MatrixLayout::row_major, f.warpgroup && !f.odd ? 8 : 1},
      .epilogue = epilogue,
      .swizzle = Swizzle::identity8,
      .split_k = f.sliced ? SplitK::parallel : SplitK::none,
      .mode = GemmMode::batched};
  d.epilogue.set_d(e);
  check(d);
  std::string text;
  for (const int number :
       {static_cast<int>(f.kind), static_cast<int>(f.dtype), int{f.warpgroup}, f.tile.rows,
        f.tile.columns, f.tile.groups, f.tile.stages, f.cluster_k, int{f.sliced}, int{f.odd},
        int{f.phases}, int{f.blocks}, f.align_c, f.align_k, int{f.tf32}})
    text += std::to_string(number) + " ";
  return {f.kind, d, text + key(epilogue), {.blocks = f.blocks, .phases = f.phases}};
}

jit::Source conv2d_source(const Conv2dKernel& k) {
  return {conv2d_name(k.kind, k.description, k.loads),
          to_conv2d_source(k.kind, k.description, k.loads), device_headers()};
}

jit::Source conv2d_join_source(const Conv2dKernel& k) {
  return {conv2d_name(k.kind, k.description, k.loads) + "_join",
          to_conv2d_join_source(k.kind, k.description, k.loads), device_headers()};
}

void launch_conv2d(const Conv2dProblem& problem, const Conv2dKernel& kernel, int slices,
                   const Conv2dTensors& tensors, Stream stream) {
  Launch(problem, kernel, slices, tensors, stream).run();
}

}  // namespace bs::cuda
