#include <bs/kernels/cuda/conv/conv2d_grid.h>
#include <bs/kernels/cuda/conv/conv2d_warpgroup.h>
#include <bs/kernels/cuda/gemm/gemm_tables.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/tensor_map.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/device/conv/conv2d_params.cuh>

#include <algorithm>
#include <bit>
#include <string>

namespace bs::cuda {

using device::Conv2dParams;
using device::TensorMapWords;

namespace {

constexpr int depth = 64;  // of a step

TensorMapElement map_element(DType dtype) {
  return dtype == f16 ? TensorMapElement::f16 : TensorMapElement::bf16;
}

/// A dense tensor of three axes, innermost first, in boxes of 128 bytes.
TensorMapWords dense_map(const Tensor& t, const std::array<int64_t, 3>& dims, int box1, int box2) {
  TiledTensor tiled{.element = map_element(t.dtype()),
                    .address = t.data(),
                    .rank = 3,
                    .swizzle = TensorMapSwizzle::bytes_128};
  tiled.dims = {dims[0], dims[1], dims[2], 1, 1};
  tiled.strides = {0, dims[0] * 2, dims[0] * dims[1] * 2, 0, 0};
  tiled.box = {depth, box1, box2, 1, 1};
  return std::bit_cast<TensorMapWords>(encode_tiled("conv2d", tiled));
}

TensorMapWords image_map(const Tensor& t, const Im2colTensor& walk) {
  Im2colTensor im2col = walk;
  im2col.element = map_element(t.dtype());
  im2col.address = t.data();
  return std::bit_cast<TensorMapWords>(encode_im2col("conv2d", im2col));
}

std::string form_key(const Conv2dForm& f, const GemmEpilogue& e) {
  return format("{} {} {} {} {} {} {} {} {} ", static_cast<int>(f.kind), static_cast<int>(f.dtype),
                f.tile.rows, f.tile.columns, f.tile.groups, f.tile.stages, f.cluster_k,
                f.sliced ? 1 : 0, f.scattered ? 1 : 0) +
         key(e);
}

const jit::Kernel& kernel_of(const Conv2dForm& form, const GemmEpilogue& epilogue, Device device) {
  static auto* const family = new jit::KernelFamily<std::string>;
  return family->get(form_key(form, epilogue), device,
                     [&] { return conv2d_source(form, epilogue); });
}

const jit::Kernel& join_of(const Conv2dForm& form, const GemmEpilogue& epilogue, Device device) {
  static auto* const family = new jit::KernelFamily<std::string>;
  return family->get(form_key(form, epilogue), device, [&] {
    const GemmDescription d = conv2d_description(form, epilogue);
    return jit::Source{join_name(d), to_join_source(d), device_headers()};
  });
}

/// One call on its way to the GPU.
class Launch {
 public:
  Launch(const Conv2dProblem& problem, const Conv2dPlan& plan, const Conv2dTensors& tensors,
         Stream stream)
      : problem_(problem),
        plan_(plan),
        form_(plan.form),
        tensors_(tensors),
        stream_(stream),
        d_(conv2d_description(form_, tensors.epilogue)) {}

  void run() {
    const Conv2dProduct product = conv2d_product(problem_, form_.kind);
    const int64_t tiles = product.phases * ceil_div(product.rows, form_.tile.rows) *
                          ceil_div(product.columns, form_.tile.columns);
    Conv2dParams params{};
    device::GemmParams& gemm = params.gemm;
    gemm.tiles = static_cast<int>(tiles);
    gemm.slices = plan_.slices;
    gemm.problem.m = static_cast<int>(product.rows);
    gemm.problem.n = static_cast<int>(product.columns);
    gemm.problem.k = static_cast<int>(product.steps / product.phases * depth);
    params.grid = conv2d_grid(problem_, form_.kind);
    maps(params);
    operands(params, product);
    Tensor partials;
    if (plan_.slices > 1) {
      partials =
          Tensor::empty({tiles * plan_.slices * partial_elements(d_)}, f32, stream_.device());
      gemm.partials = partials.data();
    }
    launch(params, tiles * plan_.slices);
    if (plan_.slices > 1) {
      const int64_t warps = tiles * join_warps(d_);
      jit::launch(join_of(form_, tensors_.epilogue, stream_.device()),
                  {.grid = dim3(static_cast<unsigned>(ceil_div(warps * 32, join_threads))),
                   .block = dim3(join_threads)},
                  stream_, gemm);
    }
  }

 private:
  void maps(Conv2dParams& params) const {
    const Conv2dProblem& p = problem_;
    const Im2colTensor walk = conv2d_walk(p, form_.kind);
    const std::array<int64_t, 3> filters{p.c, p.r * p.s, p.k};
    switch (form_.kind) {
      case Conv2dKind::fprop:
        params.a = image_map(tensors_.image, with_pixels(walk, form_.tile.rows));
        params.b = dense_map(tensors_.filters, filters, 1, form_.tile.columns);
        break;
      case Conv2dKind::dgrad:
        params.a = image_map(tensors_.pixels, with_pixels(walk, form_.tile.rows));
        params.b = dense_map(tensors_.filters, filters, 1, depth);
        break;
      case Conv2dKind::wgrad:
        params.a = dense_map(tensors_.pixels, {p.k, p.n * p.p * p.q, 1}, depth, 1);
        params.b = image_map(tensors_.image, with_pixels(walk, depth));
        break;
    }
    if (!stores_boxes(d_)) return;
    const Conv2dProduct product = conv2d_product(p, form_.kind);
    params.d = dense_map(result(), {product.columns, product.rows, 1}, 16, 1);
  }
  static Im2colTensor with_pixels(Im2colTensor walk, int pixels) {
    walk.pixels = pixels;
    return walk;
  }
  const Tensor& result() const {
    return form_.kind == Conv2dKind::fprop   ? tensors_.pixels
           : form_.kind == Conv2dKind::dgrad ? tensors_.image
                                             : tensors_.filters;
  }
  void operands(Conv2dParams& params, const Conv2dProduct& product) const {
    const Element element = element_of(form_.dtype);
    const int vector = std::min(16 / size_of(element), 8);
    const Tensor d = result().as_strided({1, result().numel() / product.columns, product.columns},
                                         {0, product.columns, 1});
    params.gemm.operands[0] = gemm_operand(d, element, vector);
    for (size_t i = 0; i < tensors_.operands.size(); ++i)
      params.gemm.operands[i + 1] =
          gemm_operand(tensors_.operands[i], tensors_.epilogue.operands()[i + 1].element, vector);
  }
  void launch(const Conv2dParams& params, int64_t work) const {
    const jit::Kernel& kernel = kernel_of(form_, tensors_.epilogue, stream_.device());
    const int threads = d_.tile.threads(), cluster = d_.tile.cluster_ctas();
    kernel.allow(shared_bytes(d_), 1);
    const int64_t resident = int64_t{device_properties(stream_.device()).multiprocessors} *
                             kernel.ctas_per_sm(threads, shared_bytes(d_));
    const int64_t ctas = std::max<int64_t>(std::min(resident / cluster, work), 1) * cluster;
    jit::launch(kernel,
                {.grid = dim3(static_cast<unsigned>(ctas)),
                 .block = dim3(static_cast<unsigned>(threads)),
                 .cluster = cluster,
                 .shared_bytes = shared_bytes(d_)},
                stream_, params);
  }

  const Conv2dProblem& problem_;
  const Conv2dPlan& plan_;
  const Conv2dForm& form_;
  const Conv2dTensors& tensors_;
  Stream stream_;
  GemmDescription d_;
};

}  // namespace

GemmDescription conv2d_description(const Conv2dForm& form, const GemmEpilogue& epilogue) {
  const Element e = element_of(form.dtype);
  const MathInstruction math{{64, form.tile.columns, 16}, e, e, Element::f32, OpClass::warpgroup,
                             MathOperation::multiply_add};
  const bool filters = form.kind == Conv2dKind::wgrad;
  GemmDescription d{
      .tile = {{form.tile.rows, form.tile.columns, depth},
               form.tile.stages,
               {4 * form.tile.groups, 1, 1},
               math,
               {1, 1},
               form.cluster_k},
      .a = {e, filters ? MatrixLayout::column_major : MatrixLayout::row_major, 8},
      .b = {e,
            form.kind == Conv2dKind::fprop ? MatrixLayout::column_major : MatrixLayout::row_major,
            8},
      .d = {e, MatrixLayout::row_major, form.scattered ? 4 : 8},
      .epilogue = epilogue,
      .swizzle = Swizzle::identity8,
      .split_k = form.sliced ? SplitK::parallel : SplitK::none,
      .mode = GemmMode::batched};
  d.epilogue.set_d(e);
  return d;
}

jit::Source conv2d_source(const Conv2dForm& form, const GemmEpilogue& epilogue) {
  const GemmDescription d = conv2d_description(form, epilogue);
  check(d);
  constexpr const char* kinds[] = {"fprop", "dgrad", "wgrad"};
  const std::string name =
      format("conv2d_{}_{}_{}x{}_k{}{}{}", kinds[static_cast<size_t>(form.kind)], form.dtype,
             form.tile.rows, form.tile.columns, form.cluster_k, form.sliced ? "_sliced" : "",
             form.scattered ? "_scattered" : "");
  const char* const loader =
      form.kind == Conv2dKind::wgrad ? "Conv2dFilterLoader" : "Conv2dPixelLoader";
  return {name, to_loader_source(d, name, {"conv/conv2d_loader", loader, "Conv2dParams"}),
          device_headers()};
}

void conv2d_warpgroup(const Conv2dProblem& problem, const Conv2dPlan& plan,
                      const Conv2dTensors& tensors, Stream stream) {
  Launch(problem, plan, tensors, stream).run();
}

}  // namespace bs::cuda
