#include <bs/nn.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

// docs/support.md is what comes out here. `BS_WRITE_SUPPORT=1 test_docs -tc="support*"` writes it.

using namespace bs;
using namespace bs::test;

namespace {

/// Makes small operands of the dtype that is tried, which want a gradient where they can have one.
struct Operands {
  DType dtype;

  Variable operator()(const Shape& shape) const {
    const Tensor values = rand(shape, f32, test_device()) * 0.5 + 0.25;
    return {cast(is_floating(dtype) ? values : values * 4, dtype), is_floating(dtype)};
  }
};

Tensor indices(std::initializer_list<int64_t> values) {
  return Tensor::from(values).to(test_device());
}

/// Made anew where it is gone: it holds lists on the device, which no test may leave there.
LayoutPtr kept_layout;
const LayoutPtr& layout() {
  if (!kept_layout) kept_layout = patterns::fixed({.rows = 2, .block = 16}, {.causal = true});
  return kept_layout;
}

struct Row {
  const char* name;
  std::function<Variable(const Operands&)> run;
};
using Rows = std::vector<Row>;

// NOLINTBEGIN(bugprone-macro-parentheses)
#define BS_ROW(name, expression)                                   \
  {                                                                \
    name, [](const Operands& o) -> Variable { return expression; } \
  }
// NOLINTEND(bugprone-macro-parentheses)

Rows arithmetic() {
  return {BS_ROW("add, sub, mul", (o({2, 3}) + o({3})) * o({2, 1}) - o({3})),
          BS_ROW("div", o({2, 3}) / o({3})),
          BS_ROW("pow", pow(o({2, 3}), o({3}))),
          BS_ROW("minimum, maximum", minimum(o({2, 3}), maximum(o({3}), 1))),
          BS_ROW("remainder", remainder(o({2, 3}), o({3}))),
          BS_ROW("eq, ne, lt, le, gt, ge", Variable(o({2, 3}) < o({3}))),
          BS_ROW("where", where((o({2}) < o({2})), o({2}), o({2}))),
          BS_ROW("neg", -o({2})),
          BS_ROW("abs", abs(o({2}))),
          BS_ROW("clamp", clamp(o({2}), 0, 1)),
          BS_ROW("exp, log", exp(log(o({2})))),
          BS_ROW("sqrt, rsqrt, reciprocal", sqrt(rsqrt(reciprocal(o({2}))))),
          BS_ROW("sin, cos, tan, erf, log1p, expm1", expm1(log1p(erf(tan(cos(sin(o({2})))))))),
          BS_ROW("floor, ceil, round, trunc, sign", sign(trunc(round(ceil(floor(o({2}))))))),
          BS_ROW("isnan, isinf, isfinite", Variable(isnan(o({2}).data()))),
          BS_ROW("logical_not, and, or, xor", Variable(logical_not(o({2}).data()))),
          BS_ROW("tanh, sigmoid, relu", relu(sigmoid(tanh(o({2}))))),
          BS_ROW("gelu, silu", silu(gelu(o({2})))),
          BS_ROW("softplus, elu, leaky_relu, mish, hardswish",
                 hardswish(mish(leaky_relu(elu(softplus(o({2}))))))),
          BS_ROW("glu", glu(o({4})))};
}

Rows reductions() {
  return {BS_ROW("sum", sum(o({2, 3}), 0)),
          BS_ROW("mean", mean(o({2, 3}), 0)),
          BS_ROW("var, stddev", stddev(o({2, 3}), 1)),
          BS_ROW("amax, amin", amax(o({2, 3}), 1)),
          BS_ROW("argmax, argmin", Variable(argmax(o({2, 3}).data(), 1))),
          BS_ROW("any, all", Variable(any(o({2, 3}).data()))),
          BS_ROW("vector_norm", vector_norm(o({2, 3}))),
          BS_ROW("logsumexp", logsumexp(o({2, 3}))),
          BS_ROW("cumsum", cumsum(o({2, 3}), 0)),
          BS_ROW("cumprod, prod", prod(cumprod(o({2, 3}), 0), 1)),
          BS_ROW("softmax, log_softmax", log_softmax(softmax(o({2, 3})))),
          BS_ROW("sort, topk, kthvalue", sort(o({2, 3})).values),
          BS_ROW("max, min with positions", max(o({2, 3}), 1).values),
          BS_ROW("argsort", Variable(argsort(o({2, 3}).data()))),
          BS_ROW("unique", Variable(unique(o({3}).data()).values)),
          BS_ROW("bincount", Variable(bincount(o({3}).data()))),
          BS_ROW("multinomial", Variable(multinomial(o({3}).data(), 1)))};
}

Rows movement() {
  return {BS_ROW("cast to f32", cast(o({2}), f32)),
          BS_ROW("view, reshape, permute, slice, expand",
                 expand(slice(permute(reshape(o({6}), {2, 3}), {1, 0}), 0, 0, 1), {3, 2})),
          BS_ROW("at", at(o({2, 3}), {1, Slice(0, 2)})),
          BS_ROW("concat, stack, split, chunk", concat({o({2}), o({3})}, 0)),
          BS_ROW("flip, roll", roll(flip(o({2, 3}), {1}), 1, 0)),
          BS_ROW("tile, repeat_interleave", repeat_interleave(tile(o({2}), {2}), 2, 0)),
          BS_ROW("tril, triu", tril(triu(o({3, 3})))),
          BS_ROW("diag", diag(o({3}))),
          BS_ROW("gather", gather(o({3}), 0, indices({0, 2}))),
          BS_ROW("scatter", scatter(o({3}), 0, indices({0, 2}), o({2}))),
          BS_ROW("scatter_add, index_add", scatter_add(o({3}), 0, indices({0, 0}), o({2}))),
          BS_ROW("index, index_select, take", index_select(o({3}), 0, indices({0, 2}))),
          BS_ROW("index_put, index_copy", index_copy(o({3}), 0, indices({0, 2}), o({2}))),
          BS_ROW("masked_select", masked_select(o({3}), ones({3}, boolean, test_device()))),
          BS_ROW("masked_fill", masked_fill(o({3}), ones({3}, boolean, test_device()), 0)),
          BS_ROW("nonzero", Variable(nonzero(o({3}).data()))),
          BS_ROW("pad", pad(o({1, 1, 2, 2}), {.padding = {1, 1, 1, 1}})),
          BS_ROW("pad of any axes", pad(o({2, 3}), {.amounts = {1, 1}})),
          BS_ROW("dropout", dropout(o({2, 3}), 0.5)),
          BS_ROW("activation_dropout", activation_dropout(o({2, 3}), Activation::relu, 0.5)),
          BS_ROW("embedding", embedding(o({4, 8}), indices({0, 3})))};
}

Rows products() {
  return {BS_ROW("matmul, bmm, dot, outer", matmul(o({2, 3}), o({3, 2}))),
          BS_ROW("einsum", einsum("ij,jk->ik", {o({2, 3}), o({3, 2})})),
          BS_ROW("linear", linear(o({2, 3}), o({4, 3}), o({4}))),
          BS_ROW("feed_forward", feed_forward(o({2, 8}), o({16, 8}), o({16}), o({8, 16}), o({8}))),
          BS_ROW("sdd", sdd(o({1, 1, 32, 16}), o({1, 1, 16, 32}), layout()).values),
          BS_ROW("dsd", dsd({layout(), o({1, layout()->nnz(), 16, 16})}, o({1, 1, 32, 16}))),
          BS_ROW("dds", dds(o({1, 1, 16, 32}), {layout(), o({1, layout()->nnz(), 16, 16})})),
          BS_ROW("block_sparse_softmax",
                 block_sparse_softmax({layout(), o({1, layout()->nnz(), 16, 16})}).values),
          BS_ROW("to_dense, to_sparse", to_dense(to_sparse(o({1, 1, 32, 32}), layout()))),
          BS_ROW("sparse_attention", sparse_attention(o({1, 1, 32, 16}), o({1, 1, 32, 16}),
                                                      o({1, 1, 32, 16}), layout())),
          BS_ROW("kron_matmul", kron_matmul(o({2, 6}), {o({2, 2}), o({3, 3})})),
          BS_ROW("kron_solve", kron_solve(o({2, 4}), {o({2, 2}), o({2, 2})})),
          BS_ROW("conv2d", conv2d(o({1, 8, 4, 4}), o({8, 8, 3, 3}))),
          BS_ROW("conv_transpose2d", conv_transpose2d(o({1, 8, 4, 4}), o({8, 8, 3, 3}))),
          BS_ROW("conv1d", conv1d(o({1, 8, 4}), o({8, 8, 3})))};
}

LSTMDirectionVariables direction(const Operands& o) {
  LSTMDirectionVariables made;
  made.weights.ih = o({32, 8});
  made.weights.hh = o({32, 8});
  return made;
}

Variable lstm_of(const Operands& o) {
  const LSTMDirectionVariables one = direction(o);
  return lstm(o({3, 2, 8}), std::span(&one, 1)).front().y;
}

RecurrentDirectionVariables direction(const Operands& o, int64_t gates) {
  RecurrentDirectionVariables made;
  made.weights.ih = o({8 * gates, 8});
  made.weights.hh = o({8 * gates, 8});
  return made;
}

Variable gru_of(const Operands& o) {
  const RecurrentDirectionVariables one = direction(o, 3);
  return gru(o({3, 2, 8}), std::span(&one, 1)).front().y;
}

Variable rnn_of(const Operands& o) {
  const RecurrentDirectionVariables one = direction(o, 1);
  return rnn(o({3, 2, 8}), std::span(&one, 1)).front().y;
}

Rows layers() {
  return {BS_ROW("layer_norm, rms_norm", layer_norm(rms_norm(o({2, 8}), o({8})), o({8}), o({8}))),
          BS_ROW("batch_norm", batch_norm(o({2, 8, 2, 2}), o({8}), o({8}), {})),
          BS_ROW("group_norm", group_norm(o({2, 8, 2, 2}), o({8}), o({8}), {.groups = 2})),
          BS_ROW("max_pool2d", max_pool2d(o({1, 8, 4, 4}), {.kernel = {2, 2}})),
          BS_ROW("avg_pool2d", avg_pool2d(o({1, 8, 4, 4}), {.kernel = {2, 2}})),
          BS_ROW("adaptive_avg_pool2d", adaptive_avg_pool2d(o({1, 8, 4, 4}), {1, 1})),
          BS_ROW("interpolate", interpolate(o({1, 8, 4, 4}), {.size = {8, 8}})),
          BS_ROW("lstm", lstm_of(o)),
          BS_ROW("gru", gru_of(o)),
          BS_ROW("rnn", rnn_of(o)),
          BS_ROW("transducer_joint", transducer_joint(o({1, 3, 8}), o({1, 2, 8})))};
}

Rows losses() {
  return {BS_ROW("mse_loss, l1_loss, huber_loss, smooth_l1_loss",
                 mse_loss(o({3}), o({3})) + huber_loss(o({3}), o({3}))),
          BS_ROW("binary_cross_entropy", binary_cross_entropy(o({3}), o({3}).data())),
          BS_ROW("binary_cross_entropy_with_logits",
                 binary_cross_entropy_with_logits(o({3}), o({3}).data())),
          BS_ROW("kl_div", kl_div(o({3}), o({3}).data())),
          BS_ROW("cosine_similarity", cosine_similarity(o({3}), o({3}))),
          BS_ROW("cross_entropy", cross_entropy(o({2, 3}), indices({0, 2}))),
          BS_ROW("soft_cross_entropy", soft_cross_entropy(o({2, 3}), o({2, 3}).data())),
          BS_ROW("nll_loss", nll_loss(o({2, 3}), indices({0, 2}))),
          BS_ROW("ctc_loss", ctc_loss(log_softmax(o({4, 1, 3})), indices({1}).reshape({1, 1}),
                                      indices({4}), indices({1}))),
          BS_ROW("transducer_loss", transducer_loss(o({1, 3, 2, 4}), indices({1}).reshape({1, 1}),
                                                    indices({3}), indices({1})))};
}

/// What an operation does with a dtype: forward and backward, forward alone, or nothing.
std::string support(const Row& row, DType dtype) {
  try {
    const Variable y = row.run(Operands{dtype});
    if (!y.requires_grad()) return "forward";
    y.backward(ones(y.shape(), y.dtype(), y.device()));
    return "both";
  } catch (const Error&) {
    return "";
  }
}

std::string table(const char* title, const Rows& rows) {
  const std::vector<DType> dtypes = {f64, f32, f16, bf16, i64, i32, u8, boolean};
  std::string text = format("## {}\n\n| operation |", title);
  for (const DType dtype : dtypes) text += format(" {} |", dtype);
  text += "\n|---|";
  for (size_t i = 0; i < dtypes.size(); ++i) text += "---|";
  for (const Row& row : rows) {
    text += format("\n| {} |", row.name);
    for (const DType dtype : dtypes) text += format(" {} |", support(row, dtype));
  }
  return text + "\n\n";
}

std::string page() {
  std::string text =
      "# What works in which dtype, on which device\n\n"
      "`tests/docs/support_test.cpp` makes this page: it tries every operation on small operands.\n"
      "A cell holds on the CPU and on CUDA alike: that test compares the CPU with the page,\n"
      "and `cuda.docs` a GPU. Other devices are not there.\n\n"
      "- *both*: forward and backward.\n"
      "- *forward*: the operation has no gradient, or integers have none.\n"
      "- An empty cell: the operation refuses the dtype, with an error that names it.\n\n";
  text += table("Arithmetic and activations", arithmetic());
  text += table("Reductions, order and choice", reductions());
  text += table("Moving elements", movement());
  text += table("Products", products());
  text += table("Layers", layers());
  text += table("Losses", losses());
  text.pop_back();
  return text;
}

}  // namespace

TEST_CASE("support: docs/support.md says what the operations do") {
  const std::string path = BS_SOURCE_DIR "/docs/support.md";
  const std::string made = page();
  if (std::getenv("BS_WRITE_SUPPORT") != nullptr) std::ofstream(path) << made;
  std::ifstream file(path);
  std::stringstream written;
  written << file.rdbuf();
  CHECK_MESSAGE(written.str() == made,
                "run `BS_WRITE_SUPPORT=1 test_docs -tc=support*` and look at the difference");
  kept_layout.reset();
}
