#include <bs/bench/plain_case_list.h>
#include <bs/kernels/norm.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/scan.h>
#include <bs/kernels/softmax.h>
#include <bs/kernels/sort.h>
#include <bs/kernels/vector_norm.h>

namespace bs::bench {

namespace {

using OverAxes = Tensor (*)(const Tensor&, const Axes&);
struct Reduction {
  const char* name;
  OverAxes run;
};

/// These over all axes there may be, the others over rows, columns and all.
constexpr Reduction everywhere[] = {
    {"sum", [](const Tensor& x, const Axes& axes) { return sum(x, axes); }},
    {"amax", [](const Tensor& x, const Axes& axes) { return amax(x, axes); }},
    {"var", [](const Tensor& x, const Axes& axes) { return var(x, axes); }},
    {"logsumexp", [](const Tensor& x, const Axes& axes) { return logsumexp(x, axes); }}};
constexpr Reduction others[] = {
    {"mean", [](const Tensor& x, const Axes& axes) { return mean(x, axes); }},
    {"amin", [](const Tensor& x, const Axes& axes) { return amin(x, axes); }},
    {"stddev", [](const Tensor& x, const Axes& axes) { return stddev(x, axes); }},
    {"prod", [](const Tensor& x, const Axes& axes) { return prod(x, axes); }},
    {"vector_norm", [](const Tensor& x, const Axes& axes) { return vector_norm(x, 2, axes); }}};

/// Of a result along one axis, which is kept.
void add_gradients(Cases& c, const char* layout, const Tensor& x, const Axes& axes) {
  const double moved = 2 * c.whole();
  const auto backward = [&](const char* what, const Tensor& y, auto run) {
    c.add(what, layout, moved, [=, dy = c.values(y.shape())] { return run(y, dy); });
  };
  const Tensor deviation = stddev(x, axes, true), most = amax(x, axes, true);
  const Tensor length = vector_norm(x, 2, axes, true), sums = logsumexp(x, axes, true);
  backward("var_backward", deviation,
           [=](const Tensor&, const Tensor& dy) { return var_backward(x, dy, axes, true, 1); });
  backward("stddev_backward", deviation, [=](const Tensor& y, const Tensor& dy) {
    return stddev_backward(x, y, dy, axes, true, 1);
  });
  backward("extremum_backward", most, [=](const Tensor& y, const Tensor& dy) {
    return extremum_backward(x, y, dy, axes, true);
  });
  backward("vector_norm_backward", length, [=](const Tensor& y, const Tensor& dy) {
    return vector_norm_backward(x, y, dy, 2, axes, true);
  });
  backward("logsumexp_backward", sums, [=](const Tensor& y, const Tensor& dy) {
    return logsumexp_backward(x, y, dy, axes, true);
  });
}

void add_places(Cases& c, const Tensor& x) {
  const double n = c.whole();
  c.add("argmax", "last axis", n, [x] { return argmax(x, 1); });
  c.add("argmax", "first axis", n, [x] { return argmax(x, 0); });
  c.add("argmin", "last axis", n, [x] { return argmin(x, 1); });
  const auto with_places = [&](const char* what, const char* layout, auto run) {
    c.add(what, layout, n, [x, run]() -> std::vector<Tensor> {
      const Indexed r = run(x);
      return {r.values, r.indices};
    });
  };
  with_places("max", "last axis", [](const Tensor& t) { return max(t, 1); });
  with_places("max", "first axis", [](const Tensor& t) { return max(t, 0); });
  with_places("min", "last axis", [](const Tensor& t) { return min(t, 1); });
}

}  // namespace

void add_reductions(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix();
  const auto over = [&](const Reduction& f, const char* layout, const Tensor& t, const Axes& axes) {
    c.add(f.name, layout, n, [t, axes, run = f.run] { return run(t, axes); });
  };
  const auto over_matrix = [&](const Reduction& f) {
    over(f, "all", x, {});
    over(f, "first axis", x, one_axis(0));
    over(f, "last axis", x, one_axis(1));
  };
  for (const Reduction& f : everywhere) {
    over_matrix(f);
    if (!c.has_cube()) continue;
    over(f, "middle axis", c.cube(x), one_axis(1));
    over(f, "outer axes", c.cube(x), Dims{0, 2});
  }
  for (const Reduction& f : others) over_matrix(f);
  c.add("sum_to", "row", n, [x, to = Shape{c.columns}] { return sum_to(x, to); });
  c.add("sum_to", "column", n, [x, to = Shape{c.rows, 1}] { return sum_to(x, to); });
  add_places(c, x);
  add_gradients(c, "first axis", x, one_axis(0));
  add_gradients(c, "last axis", x, one_axis(1));
}

void add_rows(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix(), y = c.matrix(), dy = c.matrix(), weight = c.values({c.columns}),
               bias = c.values({c.columns});
  c.add("softmax", "last axis", 2 * n, [x] { return softmax(x); });
  c.add("softmax_backward", "last axis", 3 * n,
        [y = softmax(x), dy] { return softmax_backward(y, dy); });
  c.add("log_softmax", "last axis", 2 * n, [x] { return log_softmax(x); });
  c.add("log_softmax_backward", "last axis", 3 * n,
        [y = log_softmax(x), dy] { return log_softmax_backward(y, dy); });
  c.add("layer_norm", "last axis", 2 * n, [=] { return layer_norm(x, weight, bias).y; });
  const NormResult ln = layer_norm(x, weight, bias);
  c.add("layer_norm_backward", "last axis", 3 * n, [=]() -> std::vector<Tensor> {
    const NormGradients g = layer_norm_backward(x, weight, ln.mean, ln.rstd, dy, true);
    return {g.dx, g.dweight, g.dbias};
  });
  c.add("add_layer_norm", "last axis", 4 * n, [=]() -> std::vector<Tensor> {
    const NormResult r = add_layer_norm(x, dy, weight, bias);
    return {r.sum, r.y};
  });
  c.add("layer_norm_backward", "of a sum", 4 * n, [=]() -> std::vector<Tensor> {
    const NormGradients g = layer_norm_backward(x, weight, ln.mean, ln.rstd, dy, true, y);
    return {g.dx, g.dweight, g.dbias};
  });
  c.add("add_rms_norm", "last axis", 4 * n, [=]() -> std::vector<Tensor> {
    const NormResult r = add_rms_norm(x, dy, weight);
    return {r.sum, r.y};
  });
  c.add("rms_norm", "last axis", 2 * n, [=] { return rms_norm(x, weight).y; });
  const NormResult rms = rms_norm(x, weight);
  c.add("rms_norm_backward", "last axis", 3 * n, [=]() -> std::vector<Tensor> {
    const NormGradients g = rms_norm_backward(x, weight, rms.rstd, dy);
    return {g.dx, g.dweight};
  });
}

}  // namespace bs::bench
