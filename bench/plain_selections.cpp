#include <bs/bench/plain_case_list.h>
#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/nonzero.h>
#include <bs/kernels/pointwise_loss.h>
#include <bs/kernels/rope.h>
#include <bs/kernels/scan.h>
#include <bs/kernels/sort.h>
#include <bs/kernels/unary.h>

#include <algorithm>
#include <array>

namespace bs::bench {

void add_selections(Cases& c) {
  const double n = c.whole(), number = 8.0 * static_cast<double>(c.rows * c.columns);
  const Tensor x = c.matrix(), y = c.matrix();
  const Tensor some = c.indices({c.rows}, c.rows), across = c.indices({c.columns}, c.columns);
  const Tensor places = c.indices({c.rows, c.columns}, c.columns);
  c.add("index_select", "first axis", 2 * n, [=] { return index_select(x, 0, some); });
  c.add("index_select", "last axis", 2 * n, [=] { return index_select(x, 1, across); });
  c.add("gather", "last axis", 2 * n + number, [=] { return gather(x, 1, places); });
  c.add("gather_backward", "last axis", 2 * n + number,
        [=, shape = x.shape()] { return gather_backward(y, shape, 1, places); });
  c.add("scatter", "last axis", 3 * n + number, [=] { return scatter(x, 1, places, y); });
  c.add("scatter_add", "last axis", 3 * n + number, [=] { return scatter_add(x, 1, places, y); });
  c.add("concat", "first axis", 4 * n, [=] { return concat(std::array{x, y}, 0); });
  c.add("concat", "last axis", 4 * n, [=] { return concat(std::array{x, y}, 1); });
  c.add("cumsum", "last axis", 2 * n, [=] { return cumsum(x, 1); });
  c.add("cumsum", "first axis", 2 * n, [=] { return cumsum(x, 0); });
  // Near 1, so that products stay far from the least numbers.
  c.add("cumprod", "last axis", 2 * n, [near = add(mul(x, .1), 1)] { return cumprod(near, 1); });
  c.add("sort", "last axis", 2 * n + number, [=] { return sort(x, 1).values; });
  c.add("argsort", "last axis", n + number, [=] { return argsort(x, 1); });
  const int64_t k = std::min<int64_t>(16, c.columns);
  c.add("topk 16", "last axis", n, [=] { return topk(x, k, 1).values; });
  const double mask_bytes = static_cast<double>(c.rows * c.columns);
  c.add("nonzero", "half of all", mask_bytes + number / 2,
        [mask = gt(x, 0)] { return flat_nonzero(mask); });
  if (!c.has_heads()) return;
  const Tensor table =
      rope_table(c.rows / 4, 64, 10000, 0, c.dtype() == f64 ? f64 : f32, c.device());
  const Tensor v = c.heads(x).permute({0, 2, 1, 3});
  c.add("rope", "bshd", 2 * n, [=] { return rope(v, table); });
  c.add("rope_backward", "bshd", 2 * n, [=] { return rope_backward(v, table); });
}

void add_fills(Cases& c) {
  const double n = c.whole();
  const Shape shape{c.rows, c.columns};
  const DType dtype = c.dtype();
  const Device device = c.device();
  // Each run draws the same numbers.
  const auto drawn = [&](const char* what, auto draw) {
    c.add(what, "contiguous", n, [=] {
      Generator generator(3);
      return draw(generator);
    });
  };
  c.add("full", "contiguous", n, [=] { return full(shape, 1.5, dtype, device); });
  c.add("zeros", "contiguous", n, [=] { return zeros(shape, dtype, device); });
  drawn("rand", [=](Generator& g) { return rand(shape, dtype, device, g); });
  drawn("randn", [=](Generator& g) { return randn(shape, dtype, device, g); });
  drawn("bernoulli", [=](Generator& g) { return bernoulli(.3, shape, dtype, device, g); });
}

void add_pointwise(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix(), t = c.matrix();
  // Probabilities, and their logarithms for the divergence.
  const Tensor p = sigmoid(t), log_p = log(sigmoid(x));
  const Tensor dloss = full({}, 1, mse_loss(x, t).dtype(), c.device());
  constexpr Reduction mean = Reduction::mean;
  c.add("mse_loss", "all", 2 * n, [=] { return mse_loss(x, t); });
  c.add("mse_loss_backward", "all", 3 * n, [=] { return mse_loss_backward(x, t, dloss, mean); });
  c.add("l1_loss", "all", 2 * n, [=] { return l1_loss(x, t); });
  c.add("l1_loss_backward", "all", 3 * n, [=] { return l1_loss_backward(x, t, dloss, mean); });
  c.add("huber_loss", "all", 2 * n, [=] { return huber_loss(x, t); });
  c.add("huber_loss_backward", "all", 3 * n,
        [=] { return huber_loss_backward(x, t, dloss, 1, mean); });
  c.add("binary_cross_entropy_with_logits", "all", 2 * n,
        [=] { return binary_cross_entropy_with_logits(x, p); });
  c.add("binary_cross_entropy_with_logits_backward", "all", 3 * n,
        [=] { return binary_cross_entropy_with_logits_backward(x, p, {}, dloss, mean); });
  c.add("kl_div", "all", 2 * n, [=] { return kl_div(log_p, p); });
}

}  // namespace bs::bench
