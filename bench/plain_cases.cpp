#include <bs/bench/plain_case_list.h>
#include <bs/bench/plain_cases.h>
#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/block_sparse_softmax.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/dropout.h>
#include <bs/kernels/embedding.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/loss.h>
#include <bs/kernels/matmul.h>
#include <bs/kernels/norm.h>
#include <bs/kernels/random.h>
#include <bs/kernels/rectifier.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/softmax.h>
#include <bs/kernels/unary.h>
#include <bs/kernels/vector_norm.h>
#include <bs/kernels/where.h>

#include <algorithm>

namespace bs::bench {

namespace {

void add_copies(Cases& c) {
  const double both = 2 * c.whole();
  const Tensor x = c.matrix();
  const auto copied = [&](const char* layout, const Tensor& view, double moved) {
    c.add("copy", layout, moved, [view] { return clone(view); });
  };
  copied("contiguous", x, both);
  copied("transposed", x.transpose(0, 1), both);
  if (c.has_heads()) {
    const Tensor heads = c.heads(x);
    copied("bshd to bhsd", heads.permute({0, 2, 1, 3}), both);
    copied("bshd to bhds", heads.permute({0, 2, 3, 1}), both);
    copied("bshd to sbhd", heads.permute({1, 0, 2, 3}), both);
    copied("bshd to dhsb", heads.permute({3, 2, 1, 0}), both);
  }
  const Tensor wide = c.values({c.rows, 2 * c.columns});
  copied("left half", wide.slice(1, 0, c.columns), both);
  copied("every second", wide.slice(1, 0, 2 * c.columns, 2), 1.5 * both);
  copied("shifted by one", wide.slice(1, 1, c.columns + 1), both);
  const DType other = c.dtype() == f32 ? bf16 : f32;
  const double moved = c.whole() * (1 + static_cast<double>(size_of(other)) /
                                            static_cast<double>(size_of(c.dtype())));
  c.add("cast", "contiguous", moved, [x, other] { return cast(x, other); });
  c.add("cast", "transposed", moved, [v = x.transpose(0, 1), other] { return cast(v, other); });
}

void add_binaries(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix(), y = c.matrix(), turned = c.values({c.columns, c.rows});
  const auto sum = [&](const char* layout, const Tensor& a, const Tensor& b, double moved) {
    c.add("add", layout, moved, [a, b] { return add(a, b); });
  };
  sum("contiguous", x, y, 3 * n);
  sum("row", x, c.values({c.columns}), 2 * n);
  sum("column", x, c.values({c.rows, 1}), 2 * n);
  sum("transposed", x, turned.transpose(0, 1), 3 * n);
  if (c.has_cube()) {
    sum("first axis", c.cube(x), c.values({1, c.rows / 4, c.columns}), 2 * n + n / 4);
    sum("middle axis", c.cube(x), c.values({4, 1, c.columns}), 2 * n);
  }
  const Tensor wide = c.values({c.rows, 2 * c.columns});
  sum("every second", x, wide.slice(1, 0, 2 * c.columns, 2), 4 * n);
  c.add("add", "number", 2 * n, [x] { return add(x, 1.5); });
  c.add("mul", "row", 2 * n, [x, row = c.values({c.columns})] { return mul(x, row); });
  c.add("div", "contiguous", 3 * n, [x, y] { return div(x, y); });
  c.add("minimum", "contiguous", 3 * n, [x, y] { return minimum(x, y); });
  c.add("maximum", "contiguous", 3 * n, [x, y] { return maximum(x, y); });
  c.add("pow", "number", 2 * n, [x] { return pow(x, 3); });
  const auto one = static_cast<double>(c.rows * c.columns);
  c.add("eq", "contiguous", 2 * n + one, [x, y] { return eq(x, y); });
  c.add("where", "contiguous", 3 * n + one, [x, y, b = lt(x, y)] { return where(b, x, y); });
  const auto of_bytes = [&](const char* layout, DType dtype, int64_t end) {
    const Tensor a = cast(c.indices({c.rows, c.columns}, end), dtype);
    const Tensor b = cast(c.indices({c.rows, c.columns}, end), dtype);
    c.add("add", layout, 3 * one, [a, b] { return add(a, b); });
    c.add("mul", layout, 3 * one, [a, b] { return mul(a, b); });
  };
  of_bytes("u8", u8, 256);
  of_bytes("bool", boolean, 2);
}

void add_unaries(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix(), y = c.matrix();
  const auto forward = [&](const char* what, auto f) {
    c.add(what, "contiguous", 2 * n, [x, f] { return f(x); });
  };
  const auto backward = [&](const char* what, auto f) {
    c.add(what, "contiguous", 3 * n, [x, y, f] { return f(x, y); });
  };
  forward("gelu", [](const Tensor& t) { return gelu(t); });
  forward("gelu tanh", [](const Tensor& t) { return gelu(t, Gelu::tanh); });
  forward("silu", [](const Tensor& t) { return silu(t); });
  forward("sigmoid", [](const Tensor& t) { return sigmoid(t); });
  forward("tanh", [](const Tensor& t) { return tanh(t); });
  forward("relu", [](const Tensor& t) { return relu(t); });
  forward("exp", [](const Tensor& t) { return exp(t); });
  forward("neg", [](const Tensor& t) { return neg(t); });
  forward("softplus", [](const Tensor& t) { return softplus(t); });
  backward("gelu_backward", [](const Tensor& a, const Tensor& b) { return gelu_backward(a, b); });
  backward("gelu_backward tanh",
           [](const Tensor& a, const Tensor& b) { return gelu_backward(a, b, Gelu::tanh); });
  backward("silu_backward", [](const Tensor& a, const Tensor& b) { return silu_backward(a, b); });
  backward("relu_backward", [](const Tensor& a, const Tensor& b) { return relu_backward(a, b); });
  backward("softplus_backward",
           [](const Tensor& a, const Tensor& b) { return softplus_backward(a, b, 1); });
  c.add("gelu", "transposed", 2 * n, [v = x.transpose(0, 1)] { return gelu(v); });
  c.add("dropout", "contiguous", 2 * n, [x] { return dropout(x, 0.1, {3, 5}); });
  c.add("relu, dropout", "contiguous", 2 * n, [x] {
    return activation_dropout(x, Activation::relu, 0.1, {3, 5});
  });
  c.add("relu, dropout backward", "contiguous", 3 * n, [x, y] {
    return activation_dropout_backward(x, y, Activation::relu, 0.1, {3, 5});
  });
}

void add_reductions(Cases& c) {
  const double n = c.whole();
  const Tensor x = c.matrix();
  const auto over = [&](const char* what, auto f) {
    c.add(what, "all", n, [x, f] { return f(x, Axes()); });
    c.add(what, "first axis", n, [x, f] { return f(x, Axes(Dims{0})); });
    c.add(what, "last axis", n, [x, f] { return f(x, Axes(Dims{1})); });
    if (!c.has_cube()) return;
    const Tensor cube = c.cube(x);
    c.add(what, "middle axis", n, [cube, f] { return f(cube, Axes(Dims{1})); });
    c.add(what, "outer axes", n, [cube, f] { return f(cube, Axes(Dims{0, 2})); });
  };
  over("sum", [](const Tensor& t, const Axes& axes) { return sum(t, axes); });
  over("amax", [](const Tensor& t, const Axes& axes) { return amax(t, axes); });
  over("var", [](const Tensor& t, const Axes& axes) { return var(t, axes); });
  over("logsumexp", [](const Tensor& t, const Axes& axes) { return logsumexp(t, axes); });
  c.add("argmax", "last axis", n, [x] { return argmax(x, 1); });
  c.add("argmax", "first axis", n, [x] { return argmax(x, 0); });
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

void add_losses(Cases& c) {
  // As many as large vocabularies have: tables of more would fit no GPU beside wide matrices.
  const int64_t classes = std::clamp<int64_t>(c.columns * 500 / 64, 1, 131072);
  const int64_t rows = std::max<int64_t>(1, c.rows / 2);
  const Tensor logits = c.values({rows, classes}), targets = c.indices({rows}, classes);
  const double n = c.bytes(logits.numel());
  c.add("cross_entropy", "last axis", n, [=] { return cross_entropy(logits, targets).loss; });
  const CrossEntropyResult result = cross_entropy(logits, targets);
  c.add("cross_entropy_backward", "last axis", 2 * n,
        [=, one = full({}, 1, result.loss.dtype(), c.device())] {
          return cross_entropy_backward(logits, targets, result, one);
        });
  const int64_t width = std::max<int64_t>(1, c.columns / 4);
  const Tensor table = c.values({classes, width}), tokens = c.indices({2 * c.rows}, classes);
  const Tensor dy = c.values({2 * c.rows, width});
  c.add("embedding", "first axis", 2 * c.bytes(dy.numel()),
        [table, tokens] { return embedding(table, tokens); });
  c.add("embedding_backward", "first axis", c.bytes(dy.numel() + table.numel()),
        [=] { return embedding_backward(dy, tokens, classes); });
}

/// A product with a matrix of as many columns, up to 4096.
void add_products(Cases& c) {
  const int64_t width = std::min<int64_t>(c.columns, 4096);
  const Tensor x = c.matrix(), w = c.values({c.columns, width}),
               turned = c.values({width, c.columns});
  const double moved = c.whole() + c.bytes(w.numel() + c.rows * width);
  const double flops = 2.0 * static_cast<double>(c.rows) * static_cast<double>(w.numel());
  c.add(
      "matmul", "contiguous", moved, [=] { return matmul(x, w); }, flops);
  c.add(
      "matmul", "transposed", moved, [=] { return matmul(x, turned.transpose(0, 1)); }, flops);
}

/// Every row of blocks has `each` of them, evenly spread, from another column on.
LayoutPtr spread(int64_t length, int block, int each) {
  const int64_t n = length / block;
  const Tensor mask = zeros({1, n, n}, boolean);
  bool* at = mask.data<bool>();
  for (int64_t row = 0; row < n; ++row)
    for (int64_t k = 0; k < each; ++k) at[row * n + (row * 7 + k * n / each) % n] = true;
  return Layout::from_mask(mask, block);
}

void add_blocks(Cases& c) {
  const int64_t length = c.rows / 4;
  const struct {
    int block, each;
  } patterns[] = {{16, 2}, {16, 16}, {32, 2}, {32, 8}, {64, 2}, {64, 8}, {128, 1}, {128, 4}};
  for (const auto& [block, each] : patterns) {
    if (length % block != 0 || length / block < each) continue;
    const LayoutPtr layout = spread(length, block, each);
    const int64_t matrices = std::max<int64_t>(1, c.columns / 64);
    const Tensor x = c.values({matrices, layout->nnz(), block, block}),
                 dy = c.values({matrices, layout->nnz(), block, block});
    const SparseTensor s{layout, x};
    const std::string name = std::to_string(each) + " of " + std::to_string(block);
    const double n = c.bytes(x.numel());
    c.add("block_sparse_softmax", name.c_str(), 2 * n,
          [s] { return block_sparse_softmax(s, {.scale = 0.125}).values; });
    c.add("block_sparse_softmax causal", name.c_str(), 2 * n,
          [s] { return block_sparse_softmax(s, {.scale = 0.125, .causal = true}).values; });
    c.add("block_sparse_softmax_backward", name.c_str(), 3 * n,
          [y = block_sparse_softmax(s), dy] { return block_sparse_softmax_backward(y, dy); });
  }
}

struct Set {
  const char* name;
  void (*add)(Cases&);
};
constexpr Set all_sets[] = {
    {"copy", add_copies},       {"binary", add_binaries},     {"unary", add_unaries},
    {"reduce", add_reductions}, {"rows", add_rows},           {"products", add_products},
    {"losses", add_losses},     {"pointwise", add_pointwise}, {"select", add_selections},
    {"fill", add_fills},        {"blocks", add_blocks},       {"optimisers", add_optimisers},
    {"images", add_images}};

}  // namespace

const std::vector<std::string>& plain_sets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Set& set : all_sets) all.emplace_back(set.name);
    return all;
  }();
  return names;
}

std::vector<PlainCase> plain_cases(const std::string& set, const PlainSize& size, DType dtype,
                                   Device device) {
  for (const Set& s : all_sets) {
    if (set != s.name) continue;
    Cases cases(size, dtype, device);
    s.add(cases);
    return cases.list;
  }
  BS_THROW(Error, "bench: there is no set '{}'", set);
}

}  // namespace bs::bench
