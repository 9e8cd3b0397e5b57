#include <bs/autograd/grad_check.h>
#include <bs/kernels/fill.h>
#include <bs/nn/attention.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t width = 16;
constexpr int heads = 2;
constexpr int block = 8;

/// Heads of different patterns: the first sees its own block, the second all.
LayoutPtr mixed(const patterns::Size& size) {
  patterns::Size one = size;
  one.heads = 1;
  const LayoutPtr both[] = {patterns::sliding_window(one, {.window_blocks = 1}),
                            patterns::dense(one)};
  return patterns::stack_heads(both);
}

nn::SparseAttentionOptions options(DType dtype = f64) {
  return {.width = width,
          .heads = heads,
          .block = block,
          .pattern = mixed,
          .causal = true,
          .dtype = dtype,
          .device = test_device()};
}

struct Projection {
  Reference weight, bias;
  explicit Projection(const nn::Linear& l)
      : weight(Reference::of(l.weight.data())), bias(Reference::of(l.bias.data())) {}
  std::vector<double> operator()(const double* x) const {
    std::vector<double> y = bias.values;
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t i = 0; i < width; ++i) y[o] += weight[o * width + i] * x[i];
    return y;
  }
};

/// Whether head `h` lets query `i` see key `j`.
bool sees(int64_t h, int64_t i, int64_t j) { return j <= i && (h == 1 || i / block == j / block); }

/// The module in naive loops; `hidden` keys are padding.
Reference naive(const nn::SparseAttention& module, const Reference& x, int64_t hidden) {
  const int64_t batch = x.shape[0], n = x.shape[1], dim = width / heads;
  const Projection qkv(module.qkv), out(module.out);
  Reference y(x.shape);
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<std::vector<double>> rows;
    for (int64_t i = 0; i < n; ++i)
      rows.push_back(qkv(&x.values[static_cast<size_t>((b * n + i) * width)]));
    for (int64_t i = 0; i < n; ++i) {
      std::vector<double> joined(width);
      for (int64_t h = 0; h < heads; ++h) {
        double sum = 0;
        for (int64_t j = 0; j < n - hidden; ++j) {
          if (!sees(h, i, j)) continue;
          double score = 0;
          for (int64_t c = h * dim; c < (h + 1) * dim; ++c)
            score += rows[static_cast<size_t>(i)][static_cast<size_t>(c)] *
                     rows[static_cast<size_t>(j)][static_cast<size_t>(width + c)];
          const double p = std::exp(score / std::sqrt(static_cast<double>(dim)));
          sum += p;
          for (int64_t c = h * dim; c < (h + 1) * dim; ++c)
            joined[static_cast<size_t>(c)] +=
                p * rows[static_cast<size_t>(j)][static_cast<size_t>(2 * width + c)];
        }
        for (int64_t c = h * dim; c < (h + 1) * dim; ++c) joined[static_cast<size_t>(c)] /= sum;
      }
      const std::vector<double> result = out(joined.data());
      std::copy(result.begin(), result.end(), &y.values[static_cast<size_t>((b * n + i) * width)]);
    }
  }
  return y;
}

}  // namespace

TEST_CASE("nn::SparseAttention: projections, heads, scale and pattern as in naive loops") {
  const nn::SparseAttention attention(options());
  for (int64_t n : {8, 13, 32}) {
    const Reference x = random_reference({2, n, width}, 1);
    check_close("attention", Reference::of(attention.forward(x.tensor(f64, test_device())).data()),
                naive(attention, x, 0), 1e-13);
  }
}

TEST_CASE("nn::SparseAttention: padding is not looked at") {
  const nn::SparseAttention attention(options());
  const Reference x = random_reference({1, 24, width}, 2);
  Reference mask({1, 24});
  for (size_t i = 0; i < 24; ++i) mask[i] = i < 20;
  const Variable y =
      attention.forward(x.tensor(f64, test_device()), mask.tensor(boolean, test_device()));
  check_close("attention", Reference::of(y.data()), naive(attention, x, 4), 1e-13);
}

TEST_CASE("nn::SparseAttention: the gradient of its input") {
  const nn::SparseAttention attention(options());
  const Variable x(random_reference({1, 16, width}, 3).tensor(f64, test_device()), true);
  gradcheck([&](const std::vector<Variable>& v) { return attention.forward(v[0]); }, {x});
}

TEST_CASE("nn::SparseAttention: layouts are made once a length, by each instance for itself") {
  int made = 0;
  nn::SparseAttentionOptions o = options();
  o.pattern = [&](const patterns::Size& size) { return ++made, mixed(size); };
  const nn::SparseAttention attention(o);
  const LayoutPtr first = attention.layout(16);
  CHECK(first->rows() == 2);
  CHECK(attention.layout(16) == first);
  CHECK(attention.layout(9) == first);
  CHECK(attention.layout(24)->rows() == 3);
  CHECK(made == 2);
  const nn::SparseAttention other(o);
  CHECK(other.layout(16) != first);
}

TEST_CASE("nn::SparseAttention: layouts of lengths long past go") {
  const nn::SparseAttention attention(options());
  const std::weak_ptr<const Layout> early = attention.layout(8);
  for (int64_t n = 16; n < 16 + 8 * 100; n += 8) {
    const LayoutPtr latest = attention.layout(n);
    CHECK(attention.layout(n) == latest);
  }
  CHECK(early.expired());
  CHECK(attention.layout(8)->rows() == 1);
}

TEST_CASE("nn::SparseAttention: names, dropout, and the dtypes of its parameters") {
  nn::SparseAttentionOptions o = options(bf16);
  o.dropout = 0.5;
  nn::SparseAttention attention(o);
  std::vector<std::string> names;
  for (const auto& p : attention.named_parameters()) {
    names.push_back(p.name);
    CHECK(p.variable.dtype() == bf16);
  }
  CHECK(names == std::vector<std::string>{"qkv.weight", "qkv.bias", "out.weight", "out.bias"});
  CHECK(attention.qkv.weight.shape() == Shape{3 * width, width});
  const Variable x = random_reference({1, 8, width}, 4).tensor(bf16, test_device());
  const auto run = [&] { return Reference::of(attention.forward(x).data()).values; };
  CHECK(run() != run());
  attention.eval();
  CHECK(run() == run());
}

TEST_CASE("nn::SparseAttention: errors") {
  const nn::SparseAttention attention(options());
  CHECK_THROWS_WITH_AS(attention.forward(zeros({8, width}, f64, test_device())),
                       "attention: x [8, 16] is not [batch, sequence, 16]", Error);
  nn::SparseAttentionOptions o = options();
  o.heads = 3;
  CHECK_THROWS_WITH_AS(nn::SparseAttention{o}, "attention: 3 heads cannot share a width of 16",
                       Error);
  o = options();
  o.pattern = nullptr;
  CHECK_THROWS_WITH_AS(nn::SparseAttention{o}, "attention: no pattern", Error);
  o.pattern = [](patterns::Size size) {
    size.rows += 1;
    size.cols += 1;
    return patterns::dense(size);
  };
  CHECK_THROWS_WITH_AS(nn::SparseAttention{o}.layout(16),
                       "attention: the pattern does not fit 2 heads and 2 blocks of 8 each way",
                       Error);
}
