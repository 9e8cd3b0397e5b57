#include <bs/autograd/binary.h>
#include <bs/autograd/norm.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/norm.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

/// Rows of in[0] normalised, then times in[1] and plus in[2] where they are there.
Reference normalized(const References& in, double eps, bool centred) {
  Reference y = in[0];
  const auto n = static_cast<size_t>(y.shape.back());
  for (size_t row = 0; row * n < y.values.size(); ++row) {
    double* x = &y.values[row * n];
    long double sum = 0;  // long, since a naive sum of many doubles is worse than the kernels' own
    for (size_t i = 0; i < n; ++i) sum += centred ? x[i] : 0;
    const auto mean = static_cast<double>(sum / static_cast<long double>(n));
    sum = 0;
    for (size_t i = 0; i < n; ++i) sum += (x[i] - mean) * (x[i] - mean);
    const auto variance = static_cast<double>(sum / static_cast<long double>(n));
    for (size_t i = 0; i < n; ++i) {
      x[i] = (x[i] - mean) / std::sqrt(variance + eps);
      if (in.size() > 1) x[i] *= in[1][i];
      if (in.size() > 2) x[i] += in[2][i];
    }
  }
  return y;
}

const std::vector<Shape> shapes = {{3, 5},   {2, 2},    {2, 3, 130}, {0, 4},     {4, 0},    {7},
                                   {70, 64}, {5, 1025}, {300, 24},   {2, 16392}, {1, 40001}};

}  // namespace

TEST_CASE("layer_norm") {
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    const Shape n = {shape.back()};
    check_op({.name = "layer_norm",
              .inputs = {shape, n, n},
              .op = [](const Variables& v) { return layer_norm(v[0], v[1], v[2]); },
              .reference = [](const References& in) { return normalized(in, 1e-5, true); }});
  }
  check_op({.name = "layer_norm without weight and bias",
            .inputs = {{6, 33}},
            .op = [](const Variables& v) { return layer_norm(v[0], {}, {}, 0.1); },
            .reference = [](const References& in) { return normalized(in, 0.1, true); }});
  check_op({.name = "layer_norm without bias",
            .inputs = {{6, 32}, {32}},
            .op = [](const Variables& v) { return layer_norm(v[0], v[1], {}); },
            .reference = [](const References& in) { return normalized(in, 1e-5, true); }});
}

TEST_CASE("rms_norm") {
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    check_op({.name = "rms_norm",
              .inputs = {shape, {shape.back()}},
              .op = [](const Variables& v) { return rms_norm(v[0], v[1]); },
              .reference = [](const References& in) { return normalized(in, 1e-6, false); }});
  }
  check_op({.name = "rms_norm without weight",
            .inputs = {{6, 33}},
            .op = [](const Variables& v) { return rms_norm(v[0], {}); },
            .reference = [](const References& in) { return normalized(in, 1e-6, false); }});
}

TEST_CASE("a sum and its norm in one pass") {
  // Both results count, so that two gradients meet in the sum.
  const auto reference = [](const References& in, double eps, bool centred) {
    References normed = in;
    for (size_t i = 0; i < in[0].values.size(); ++i) normed[0][i] += in[1][i];
    const Reference sum = normed[0];
    normed.erase(normed.begin() + 1);
    Reference y = normalized(normed, eps, centred);
    for (size_t i = 0; i < y.values.size(); ++i) y[i] += 0.5 * sum[i];
    return y;
  };
  for (const Shape& shape : shapes) {
    CAPTURE(to_string(shape));
    const Shape n = {shape.back()};
    check_op({.name = "add_layer_norm",
              .inputs = {shape, shape, n, n},
              .op =
                  [](const Variables& v) {
                    const SumAndNorm y = add_layer_norm(v[0], v[1], v[2], v[3]);
                    return y.norm + y.sum * 0.5;
                  },
              .reference = [=](const References& in) { return reference(in, 1e-5, true); }});
    check_op({.name = "add_rms_norm",
              .inputs = {shape, shape, n},
              .op =
                  [](const Variables& v) {
                    const SumAndNorm y = add_rms_norm(v[0], v[1], v[2]);
                    return y.norm + y.sum * 0.5;
                  },
              .reference = [=](const References& in) { return reference(in, 1e-6, false); }});
  }
  const Variable a(random_reference({3, 8}, 1).tensor(f32, test_device()), true);
  const Variable b(random_reference({3, 8}, 2).tensor(f32, test_device()), true);
  const Variable sum = add_layer_norm(a, b, {}, {}).sum;
  sum.backward(full({3, 8}, 2, f32, test_device()));
  for (const Variable& v : {a, b})
    for (double g : Reference::of(v.grad()).values) CHECK(g == 2);
}

TEST_CASE("a norm of nothing added passes its input on") {
  const auto reference = [](const References& in, double eps, bool centred) {
    Reference y = normalized(in, eps, centred);
    for (size_t i = 0; i < y.values.size(); ++i) y[i] += 0.5 * in[0][i];
    return y;
  };
  check_op({.name = "add_layer_norm of nothing",
            .inputs = {{6, 32}, {32}, {32}},
            .op =
                [](const Variables& v) {
                  const SumAndNorm y = add_layer_norm(v[0], {}, v[1], v[2]);
                  return y.norm + y.sum * 0.5;
                },
            .reference = [=](const References& in) { return reference(in, 1e-5, true); }});
  check_op({.name = "add_rms_norm of nothing",
            .inputs = {{6, 32}, {32}},
            .op =
                [](const Variables& v) {
                  const SumAndNorm y = add_rms_norm(v[0], {}, v[1]);
                  return y.norm + y.sum * 0.5;
                },
            .reference = [=](const References& in) { return reference(in, 1e-6, false); }});
}

namespace {
/// Everything that norms of x and their gradients give on a device.
std::vector<Reference> norms_of(const std::vector<Tensor>& drawn, Device device) {
  std::vector<Tensor> on;
  for (const Tensor& t : drawn) on.push_back(t.to(device));
  const Tensor x = on[0], more = on[1], dy = on[2], weight = on[3], bias = on[4];
  const NormResult r = add_layer_norm(x, more, weight, bias);
  std::vector<Reference> all = {Reference::of(r.y), Reference::of(r.sum)};
  for (const Tensor& dsum : {Tensor(), more}) {
    const NormGradients g = layer_norm_backward(r.sum, weight, r.mean, r.rstd, dy, true, dsum);
    for (const Tensor& t : {g.dx, g.dweight, g.dbias}) all.push_back(Reference::of(t));
    all.push_back(Reference::of(rms_norm_backward(r.sum, {}, r.rstd, dy, dsum).dx));
  }
  return all;
}

void check_norms(int64_t rows, int64_t n, DType dtype) {
  CAPTURE(rows);
  CAPTURE(n);
  CAPTURE(dtype);
  std::vector<Tensor> drawn;
  for (const Shape& shape : {Shape{rows, n}, Shape{rows, n}, Shape{rows, n}, Shape{n}, Shape{n}})
    drawn.push_back(random_reference(shape, drawn.size() + 1).tensor(dtype, Device::cpu()));
  const auto expected = norms_of(drawn, Device::cpu()), actual = norms_of(drawn, test_device());
  for (size_t i = 0; i < expected.size(); ++i)
    check_close("result " + std::to_string(i), actual[i], expected[i],
                (dtype == f32 ? 64 : 4) * epsilon(dtype) * largest(expected[i]));
}
}  // namespace

// Lanes of a warp take each row, or a warp, or as many threads as it has vectors.
TEST_CASE("norms of many rows agree with the CPU's" * doctest::skip(!test_device().is_cuda())) {
  for (const int64_t n : {1, 3, 8, 20, 100, 256, 264, 512, 768, 1032, 4096, 8192})
    for (const DType dtype : {bf16, f16, f32})
      // One column has no gradient but what is rounded off.
      if (n >= 8 || dtype == bf16) check_norms(n > 1000 ? 601 : 4999, n, dtype);
}

// Fewer rows than threads could take at once: their sums are of few rows each.
TEST_CASE("norms of few rows agree with the CPU's" * doctest::skip(!test_device().is_cuda())) {
  for (const int64_t rows : {1, 2, 3, 7, 40, 300})
    for (const DType dtype : {bf16, f32}) check_norms(rows, 1032, dtype);
}

// Up to four blocks share a row; longer ones, and such as are no whole vectors, are read twice.
TEST_CASE("norms of long rows agree with the CPU's" * doctest::skip(!test_device().is_cuda())) {
  for (const DType dtype : {bf16, f32}) {
    for (const int64_t n : {8200, 10001, 16384}) check_norms(sampled(403), n, dtype);
    for (const int64_t n : {32768, 32776, 100000}) check_norms(sampled(67), n, dtype);
    check_norms(1, 65544, dtype);
  }
}

TEST_CASE("layer_norm takes views and keeps its statistics") {
  const Reference x = random_reference({9, 4}, 3);
  const Tensor t = x.tensor(bf16, test_device());
  const NormResult r = layer_norm(t.transpose(0, 1), {}, {});
  CHECK(r.mean.shape() == Shape{4});
  CHECK(r.mean.dtype() == f32);
  Reference turned({4, 9});
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 9; ++j) turned.at({i, j}) = Reference::of(t).at({j, i});
  const Reference expected = normalized({turned}, 1e-5, true);
  const Reference y = Reference::of(r.y);
  for (size_t i = 0; i < y.values.size(); ++i)
    CHECK(std::abs(y[i] - expected[i]) <= 4 * epsilon(bf16));
}

TEST_CASE("layer_norm of one column is its bias") {
  const Tensor x = random_reference({5, 1}, 1).tensor(f32, test_device());
  const Tensor ones = full({1}, 1, f32, test_device());
  const Tensor bias = Tensor::from<float>({3}).to(test_device());
  const NormResult r = layer_norm(x, ones, bias);
  for (double v : Reference::of(r.y).values) CHECK(v == 3);
  const NormGradients g = layer_norm_backward(x, ones, r.mean, r.rstd, x, true);
  // dy less its mean: nothing but a rounding, which 1 / sqrt(eps) magnifies.
  for (double v : Reference::of(g.dx).values) CHECK(std::abs(v) <= 317 * epsilon(f32));
  for (double v : Reference::of(g.dweight).values) CHECK(v == 0);
}

TEST_CASE("layer_norm does not cancel where the mean is large") {
  Reference x = random_reference({1, 512}, 5);
  for (double& v : x.values) v += 4096;
  x = Reference::of(x.tensor(f32, Device::cpu()));
  const Reference y = Reference::of(layer_norm(x.tensor(f32, test_device()), {}, {}).y);
  const Reference expected = normalized({x}, 1e-5, true);
  // The mean may be off by one step of f32 at 4096, and 1 / deviation is below 2. One pass with
  // sums of squares would be off by the size of the values themselves.
  double worst = 0;
  for (size_t i = 0; i < y.values.size(); ++i)
    worst = std::max(worst, std::abs(y[i] - expected[i]));
  CHECK(worst <= 2 * 0x1p-11);
}

TEST_CASE("norms refuse what does not fit") {
  const Tensor x = Tensor::empty({2, 3}, f32);
  CHECK_THROWS_WITH_AS(layer_norm(Tensor::empty({}, f32), {}, {}),
                       "layer_norm: a scalar has no axis", Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, Tensor::empty({2}, f32), {}),
                       "layer_norm: weight [2] does not fit the last axis of x [2, 3]", Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {}, Tensor::empty({1, 3}, f32)),
                       "layer_norm: bias [1, 3] does not fit the last axis of x [2, 3]", Error);
  CHECK_THROWS_WITH_AS(rms_norm(x, Tensor::empty({3}, f64)), "rms_norm: dtypes f32 and f64 differ",
                       Error);
  CHECK_THROWS_WITH_AS(rms_norm(x, {}, -1.0), "rms_norm: eps -1 is negative", Error);
  CHECK_THROWS_WITH_AS(rms_norm(Tensor::empty({2, 2}, i32), {}),
                       "norm: dtype i32 is not supported; expected f64, f32, f16 or bf16", Error);
}
