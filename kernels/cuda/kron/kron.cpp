#include <bs/kernels/cuda/kron/kron_kernels.h>
#include <bs/kernels/cuda/kron/kron_library.h>
#include <bs/kernels/math_mode.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <cstdint>

namespace bs::cuda {

namespace {

using device::KronShape;

std::vector<KronAxis> axes_of(const std::vector<Tensor>& factors) {
  std::vector<KronAxis> axes;
  axes.reserve(factors.size());
  for (const Tensor& f : factors) axes.push_back({f.size(1), f.size(2)});
  return axes;
}

std::vector<Tensor> transposed(const std::vector<Tensor>& factors) {
  std::vector<Tensor> result;
  result.reserve(factors.size());
  for (const Tensor& f : factors) result.push_back(f.transpose(1, 2));
  return result;
}

std::optional<KronShape> shape_of(const std::vector<Tensor>& factors, const Tensor& y,
                                  bool backward, Stream stream) {
  return kron_shape_of(axes_of(factors), y.size(3), kron_numbers(y.dtype(), tf32_allowed()),
                       backward, device_properties(stream.device()).shared_memory_optin);
}

bool aligned(const Tensor& t) {
  return !t.defined() || reinterpret_cast<uintptr_t>(t.data()) % 16 == 0;
}

/// The kernel for tiles of `shape` of tensors [groups, outer, extent, inner].
KronKernel kernel_of(const KronShape& shape, const Tensor& x, const Tensor& y) {
  KronKernel k = kron_kernel(y.dtype(), shape);
  const int64_t inner = y.size(3), vector = 16 / static_cast<int64_t>(size_of(y.dtype()));
  k.whole = shape.chunk == inner;
  k.aligned = aligned(x) && aligned(y) &&
              (k.whole ? x.size(2) * inner % vector == 0 && y.size(2) * inner % vector == 0
                       : shape.chunk % vector == 0 && inner % vector == 0);
  return k;
}

const jit::Kernel& compiled(const KronKernel& k, Stream stream) {
  static auto* const family = new jit::KernelFamily<KronKernel>;
  return family->get(k, stream.device(), [&] { return kron_source(k); });
}

struct Tiles {
  unsigned count, chunks;  ///< of a group; of a row
};

Tiles tiles_of(const KronShape& shape, const Tensor& y) {
  const int64_t chunks = ceil_div(y.size(3), shape.chunk);
  const int64_t count = ceil_div(y.size(1), shape.rows) * chunks;
  constexpr int64_t most_groups = 65535;
  BS_CHECK(count <= INT32_MAX && y.size(0) <= most_groups,
           "kron_matmul: {} groups of {} tiles are more than the CUDA kernels can number",
           y.size(0), count);
  return {static_cast<unsigned>(count), static_cast<unsigned>(chunks)};
}

/// CTAs of a group: as many as run at a time, or one a tile.
unsigned ctas_of(const jit::Kernel& kernel, int threads, int bytes, int64_t tiles, Stream stream) {
  const DeviceProperties& gpu = device_properties(stream.device());
  constexpr int registers = 65536, reserved = 1024;  // of an SM; of each CTA's shared memory
  const int by_memory = (gpu.shared_memory_optin + reserved) / (bytes + reserved);
  const int by_registers = registers / (std::max(kernel.resources().registers, 1) * threads);
  const int at_once = std::clamp(std::min(by_memory, by_registers), 1, 2048 / threads);
  const int64_t places = int64_t{gpu.multiprocessors} * at_once;
  const int64_t rounds = ceil_div(tiles, places);  // each CTA has as many tiles as the others
  return static_cast<unsigned>(ceil_div(tiles, rounds));
}

void fill(device::KronFactor (&to)[KronShape::most], const std::vector<Tensor>& factors) {
  for (size_t i = 0; i < factors.size(); ++i) {
    const Tensor& f = factors[i];
    to[i] = {f.data(), f.strides()[0], f.strides()[1], f.strides()[2]};
  }
}

void launch_forward(const KronShape& shape, const Tensor& x, const std::vector<Tensor>& factors,
                    const Tensor& bias, Activation activation, const Tensor& before,
                    const Tensor& y, Stream stream) {
  KronKernel k = kernel_of(shape, x, y);
  k.finish = bias.defined() || before.defined() || activation != Activation::none;
  const jit::Kernel& kernel = compiled(k, stream);
  const int bytes = shape.forward_bytes();
  const Tiles tiles = tiles_of(shape, y);
  device::KronForwardArguments a{.x = x.data(),
                                 .bias = bias.defined() ? bias.data() : nullptr,
                                 .before = before.defined() ? before.data() : nullptr,
                                 .y = y.data(),
                                 .outer = y.size(1),
                                 .inner = y.size(3),
                                 .tiles = tiles.count,
                                 .chunks = tiles.chunks,
                                 .activation = static_cast<int>(activation),
                                 .factors = {}};
  fill(a.factors, factors);
  const unsigned ctas = ctas_of(kernel, k.threads, bytes, a.tiles, stream);
  jit::launch(kernel,
              {.grid = dim3(ctas, static_cast<unsigned>(y.size(0))),
               .block = dim3(static_cast<unsigned>(k.threads)),
               .shared_bytes = bytes},
              stream, a);
}

void launch_sum(const Tensor& partials, const std::vector<Tensor>& dfactors, DType dtype,
                const KronShape& shape, Stream stream) {
  static auto* const family = new jit::KernelFamily<DType>;
  const jit::Kernel& kernel =
      family->get(dtype, stream.device(), [&] { return kron_sum_source(dtype); });
  device::KronSumArguments a{.partials = partials.data(),
                             .results = {},
                             .ends = {},
                             .count = shape.count,
                             .ctas = static_cast<int>(partials.size(1)),
                             .elements = shape.weights(shape.count)};
  for (int i = 0; i < shape.count; ++i) {
    const Tensor& d = dfactors[static_cast<size_t>(i)];
    a.results[i] = d.defined() ? d.data() : nullptr;
    a.ends[i] = shape.weights(i + 1);
  }
  constexpr unsigned threads = 64;
  const auto ctas = static_cast<unsigned>(ceil_div(a.elements, threads));
  jit::launch(kernel,
              {.grid = dim3(ctas, static_cast<unsigned>(partials.size(0))), .block = dim3(threads)},
              stream, a);
}

void launch_backward(const KronShape& shape, const Tensor& x, const std::vector<Tensor>& factors,
                     const Tensor& dy, const Tensor& dx, const std::vector<Tensor>& dfactors,
                     Stream stream) {
  KronKernel k = kernel_of(shape, x, dy);
  k.backward = true;
  k.aligned = k.aligned && aligned(dx);
  const jit::Kernel& kernel = compiled(k, stream);
  const int bytes = shape.backward_bytes();
  const Tiles tiles = tiles_of(shape, dy);
  const int64_t groups = dy.size(0);
  const unsigned ctas = ctas_of(kernel, k.threads, bytes, tiles.count, stream);
  const Tensor partials = Tensor::empty({groups, ctas, shape.weights(shape.count)},
                                        dy.dtype() == f64 ? f64 : f32, dy.device());
  device::KronBackwardArguments a{.x = x.data(),
                                  .dy = dy.data(),
                                  .dx = dx.defined() ? dx.data() : nullptr,
                                  .partials = partials.data(),
                                  .outer = dy.size(1),
                                  .inner = dy.size(3),
                                  .tiles = tiles.count,
                                  .chunks = tiles.chunks,
                                  .factors = {}};
  fill(a.factors, factors);
  jit::launch(kernel,
              {.grid = dim3(ctas, static_cast<unsigned>(groups)),
               .block = dim3(static_cast<unsigned>(k.threads)),
               .shared_bytes = bytes},
              stream, a);
  launch_sum(partials, dfactors, dy.dtype(), shape, stream);
}

}  // namespace

void kron_plan(const std::vector<KronAxis>& axes, DType dtype, bool backward, KronPlan& plan,
               Stream stream) {
  const int limit = device_properties(stream.device()).shared_memory_optin;
  int64_t inner = 1;
  for (size_t last = axes.size(); last > 0;) {
    const int length = kron_pass_length(std::span(axes).first(last), inner,
                                        static_cast<int>(size_of(dtype)), backward, limit);
    plan.passes.push_back(length);
    for (int i = 0; i < length; ++i) inner *= axes[--last].q;
  }
}

void kron_pass(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& bias,
               Activation activation, const Tensor& before, const Tensor& y, Stream stream) {
  const bool plain = !bias.defined() && !before.defined() && activation == Activation::none;
  const std::vector<KronAxis> axes = axes_of(factors);
  const bool dense =
      plain && axes.size() == 1 && kron_wide(axes.front(), static_cast<int>(size_of(y.dtype())));
  const auto shape = dense ? std::nullopt : shape_of(factors, y, false, stream);
  if (shape) return launch_forward(*shape, x, factors, bias, activation, before, y, stream);
  kron_library_step(x, factors.front(), y, stream);
  kron_library_finish(bias, activation, before, y, stream);
}

void kron_pass_backward(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& dy,
                        const Tensor& dx, const std::vector<Tensor>& dfactors, Stream stream) {
  const bool wanted = std::ranges::any_of(dfactors, [](const Tensor& t) { return t.defined(); });
  if (!wanted) return kron_pass(dy, transposed(factors), {}, Activation::none, {}, dx, stream);
  if (const auto shape = shape_of(factors, dy, true, stream))
    return launch_backward(*shape, x, factors, dy, dx, dfactors, stream);
  kron_library_contract(x, dy, dfactors.front(), stream);
  if (dx.defined()) kron_pass(dy, transposed(factors), {}, Activation::none, {}, dx, stream);
}

}  // namespace bs::cuda
