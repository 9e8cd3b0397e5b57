#include <bs/autograd/block_sparse_matmul.h>
#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/math_mode.h>
#include <bs/kernels/matmul.h>
#include <bs/tests/kernels/block_sparse_epilogue_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>

using namespace bs;
using namespace bs::test;

namespace {

/// A function of the vocabulary and its formula.
struct Function {
  const char* name;
  epilogue::Value (*build)(const epilogue::Value&);
  double (*formula)(double);
};

const Function functions[] = {
    {"relu", epilogue::relu, [](double x) { return std::max(x, 0.0); }},
    {"leaky_relu", [](const epilogue::Value& x) { return epilogue::leaky_relu(x, 0.25); },
     [](double x) { return x < 0 ? 0.25 * x : x; }},
    {"tanh", epilogue::tanh, [](double x) { return std::tanh(x); }},
    {"sigmoid", epilogue::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"silu", epilogue::silu, [](double x) { return x / (1 + std::exp(-x)); }},
    {"hardswish", epilogue::hardswish,
     [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; }},
    {"gelu", epilogue::gelu, [](double x) { return x * (1 + std::erf(x / std::sqrt(2.0))) / 2; }},
    {"gelu_tanh", epilogue::gelu_tanh,
     [](double x) {
       return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
};

/// D = f(alpha sum + row + column + beta c), with the argument stored in `aside`'s element.
void check(const Case& c, DType dtype, const Function& f, std::optional<DType> aside_dtype = {}) {
  using namespace bs::epilogue;
  const Problem p = make(c, dtype);
  const DType stored = aside_dtype.value_or(dtype);
  const Element e = element_of(dtype);
  const std::vector<Place> at = places(c, p.sums);
  REQUIRE(at.size() == p.sums.values.size());
  Shape of_rows = p.matrices;  // vectors of each matrix, where there are several
  of_rows.push_back(p.n);
  const Reference row_values = drawn(of_rows, 3, dtype), column_values = drawn({p.m}, 4, f32);
  const Reference beside = drawn(p.sums.shape, 5, dtype);

  const Value t = scalar("alpha") * accumulator() + row("r", e) + column("c", Element::f32) +
                  scalar("beta") * tensor("z", e);
  const Tensor kept = Tensor::empty(p.sums.shape, stored, test_device());
  const ProductOptions options{
      .epilogue = GemmEpilogue(f.build(t)).store("kept", t, element_of(stored)),
      .tensors = {{"r", row_values.tensor(dtype, test_device())},
                  {"c", column_values.tensor(f32, test_device())},
                  {"z", beside.tensor(dtype, test_device())},
                  {"kept", kept}},
      .scalars = {{"alpha", 0.75}, {"beta", -0.5}}};
  const Reference actual = Reference::of(p.run(options));
  Reference argument(p.sums.shape), expected(p.sums.shape);
  for (size_t i = 0; i < at.size(); ++i) {
    argument[i] = 0.75 * p.sums[i] +
                  row_values[static_cast<size_t>(at[i].matrix * p.n + at[i].column)] +
                  column_values[static_cast<size_t>(at[i].row)] - 0.5 * beside[i];
    expected[i] = f.formula(argument[i]);
  }
  const std::string what = describe(c, dtype) + " " + f.name;
  // Computed in f32, or f64 for f64, and rounded to what is stored.
  const double computed = epsilon(dtype == f64 ? f64 : f32),
               size = std::max(1.0, largest(argument));
  check_close(what, actual, expected, 16 * std::max(epsilon(dtype), computed) * size);
  check_close(what + " kept", Reference::of(kept), argument,
              16 * std::max(epsilon(stored), computed) * size);
}

}  // namespace

// Kernels are compiled one for each of these: cases are small, so that they can run side by side.

namespace {

void check_functions(const char* op) {
  for (const Function& f : functions)
    for (const DType dtype : {f32, bf16})
      check({op, Mask::random(1, 3, 4, 16, 0.5, 1), 24}, dtype, f);
  for (const DType dtype : {f64, f16})
    for (const size_t f : {0, 2, 6})
      check({op, Mask::random(1, 3, 4, 32, 0.5, 1), 24}, dtype, functions[f]);
}

void check_transposes(const char* op) {
  for (const Transpose t : transposes)
    for (const DType dtype : {f32, bf16}) {
      check({op, Mask::random(1, 3, 4, 16, 0.5, 2), 40, t, {2, 3}, {3}}, dtype, functions[6]);
      check({op, Mask::random(3, 2, 3, 32, 0.5, 3), 8, t, {2}, {}}, dtype, functions[0]);
    }
}

void check_sizes(const char* op) {
  for (const int block : {8, 16, 32, 64, 128})
    for (const int64_t free : {1, 7, 72, 264}) {
      check({op, Mask::random(1, 3, 2, block, 0.6, 4), free}, f16, functions[4]);
      if (block < 64) check({op, Mask::random(2, 2, 3, block, 0.6, 5), free}, f32, functions[4]);
    }
}

void check_f32(const char* op) {
  each_large_f32([&](const Mask& mask, Transpose t) {
    check({op, mask, 204, t, {2}, {}, true}, f32, functions[7]);
    check({op, mask, 197, t, {}, {2}, true}, f32, functions[7]);
    if (!t.a) check({op, mask, 264, t, {}, {}, true}, f32, functions[0], f16);
  });
}

}  // namespace

TEST_CASE("block-sparse epilogues: every function, sdd") { check_functions("sdd"); }
TEST_CASE("block-sparse epilogues: every function, dsd") { check_functions("dsd"); }
TEST_CASE("block-sparse epilogues: every function, dds") { check_functions("dds"); }
TEST_CASE("block-sparse epilogues: transposes, heads and batches, sdd") { check_transposes("sdd"); }
TEST_CASE("block-sparse epilogues: transposes, heads and batches, dsd") { check_transposes("dsd"); }
TEST_CASE("block-sparse epilogues: transposes, heads and batches, dds") { check_transposes("dds"); }
TEST_CASE("block-sparse epilogues: blocks, sizes that fill no tile, sdd") { check_sizes("sdd"); }
TEST_CASE("block-sparse epilogues: blocks, sizes that fill no tile, dsd") { check_sizes("dsd"); }
TEST_CASE("block-sparse epilogues: blocks, sizes that fill no tile, dds") { check_sizes("dds"); }

TEST_CASE("block-sparse epilogues: f32 with large blocks, sdd") { check_f32("sdd"); }
TEST_CASE("block-sparse epilogues: f32 with large blocks, dsd") { check_f32("dsd"); }
TEST_CASE("block-sparse epilogues: f32 with large blocks, dds") { check_f32("dds"); }

TEST_CASE("block-sparse epilogues: what is stored beside may be of another type") {
  for (const char* op : {"sdd", "dsd", "dds"})
    for (const DType stored : {f32, f16, bf16})
      check({op, Mask::random(1, 3, 4, 32, 0.5, 6), 136}, bf16, functions[7], stored);
}

TEST_CASE("block-sparse epilogues: sums over nothing get bias and function too") {
  Mask holes(2, 3, 4, 16);  // head 1 is empty; in head 0 an empty row and two empty columns
  holes.at(0, 0, 1) = holes.at(0, 2, 1) = holes.at(0, 2, 2) = 1;
  for (const Mask& mask : {holes, Mask(1, 2, 3, 16), Mask(1, 2, 2, 8)})
    for (const Transpose t : {transposes[0], transposes[3]})
      for (const DType dtype : {f32, f16})
        for (const char* op : {"dsd", "dds"}) check({op, mask, 24, t}, dtype, functions[3]);
  for (const DType dtype : {f32, f16})  // no depth
    check({"sdd", Mask::random(2, 3, 2, 16, 0.5, 7), 0}, dtype, functions[3]);
  for (const char* op : {"sdd", "dsd", "dds"}) {
    check({op, Mask(1, 0, 2, 8), 3}, f32, functions[0]);
    check({op, Mask(1, 2, 2, 8, 1), op[0] == 's' ? 5 : 0}, f32, functions[0]);
  }
}

namespace {

/// Bias, relu and what it is taken of, in whole numbers, behind sums that are known.
void check_exact(const Tensor& sums, const std::function<Tensor(const ProductOptions&)>& run) {
  using namespace bs::epilogue;
  const Element element = element_of(sums.dtype());
  const Value x = accumulator() + row("bias", element);
  const Tensor bias = whole({sums.size(-1)}, 16, sums.dtype());
  const Tensor kept = Tensor::empty_like(sums);
  const Reference got = Reference::of(run({.epilogue = GemmEpilogue(relu(x)).store("x", x, element),
                                           .tensors = {{"bias", bias}, {"x", kept}}}));
  const Reference before = Reference::of(kept), added = Reference::of(bias);
  const Reference want = Reference::of(sums);
  size_t wrong = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    const double argument = want[i] + added[i % added.values.size()];
    wrong += before[i] != argument || got[i] != std::max(argument, 0.0);
  }
  CHECK(wrong == 0);
}

/// dsd and dds of a matrix with `outer` rows or columns, against dense products.
void check_exact(const Mask& mask, int64_t outer, Transpose t, Mode mode) {
  const TF32Guard guard(mode.tf32);
  const DType dtype = mode.dtype;
  const SparseTensor s{mask.layout(), whole(mask.values(), 14, dtype)};
  const Tensor stored = to_dense(s);
  for (const bool left : {false, true}) {
    const int64_t k = left == (left ? t.b : t.a) ? mask.width() : mask.height();
    const Tensor dense =
        whole(left ? flipped({outer, k}, t.a) : flipped({k, outer}, t.b), 15, dtype);
    const Tensor sums = left ? matmul(turned(dense, t.a), turned(stored, t.b))
                             : matmul(turned(stored, t.a), turned(dense, t.b));
    check_exact(sums, [&](const ProductOptions& options) {
      return left ? dds(dense, s, t, options) : dsd(s, dense, t, options);
    });
  }
}

/// Few and long items, whose depth a GPU cuts.
void check_long(int block, Mode mode) {
  using namespace bs::epilogue;
  const int depth = large_on_gpu(4096, 512);
  for (const Transpose t : transposes) {
    const Mask wide = Mask::random(1, 256 / block, depth / block, block, 0.7, 17);
    const Mask high = Mask::random(1, depth / block, 256 / block, block, 0.7, 18);
    check_exact(t.a ? high : wide, 200, t, mode);
    check_exact(t.b ? high : wide, 200, t, mode);
  }
  const TF32Guard guard(mode.tf32);
  const Mask mask = Mask::random(1, 256 / block, 256 / block, block, 0.5, 19);
  const Tensor a = whole({256, 2 * depth}, 20, mode.dtype);
  const Tensor b = whole({2 * depth, 256}, 21, mode.dtype);
  const Tensor values = sdd(a, b, mask.layout()).values;
  const Tensor got =
      sdd(a, b, mask.layout(), {}, {.epilogue = GemmEpilogue(relu(-accumulator()))}).values;
  const Reference want = Reference::of(values), actual = Reference::of(got);
  size_t wrong = 0;
  for (size_t i = 0; i < want.values.size(); ++i) wrong += actual[i] != std::max(-want[i], 0.0);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("block-sparse epilogues: of layouts that are all but dense") {
  // Large enough for a GPU to go by way of a dense product.
  const int rows = large_on_gpu(160, 20), cols = large_on_gpu(144, 18);
  check_exact(Mask::random(1, rows, cols, 16, 0.9, 13), large_on_gpu(2048, 256), {.b = true},
              {f16});
}

TEST_CASE("block-sparse epilogues: of results that fill a GPU with the widest tiles") {
  const int64_t n = test_device().is_cuda() ? 2048 : 72;
  for (const DType dtype : {f32, f64})
    for (const int block : {32, 64})
      check_exact(Mask::random(1, 2560 / block, 256 / block, block, 0.3, 26), n, {.b = true},
                  {dtype});
}

TEST_CASE("block-sparse epilogues: of f32 rounded to TF32, with columns for the widest tiles") {
  const int rows = large_on_gpu(68, 2), cols = large_on_gpu(68, 3);
  for (const Transpose t : transposes)
    check_exact(Mask::random(1, rows, cols, 64, 0.1, 22), large_on_gpu(2048, 192), t, {f32, true});
}

TEST_CASE("block-sparse epilogues: of columns that come in pairs") {
  const Mask mask = Mask::random(1, large_on_gpu(40, 3), large_on_gpu(41, 5), 32, 0.4, 31);
  for (const Transpose t : transposes) check_exact(mask, large_on_gpu(520, 136), t, {f16});
}

TEST_CASE("block-sparse epilogues: of few and long items, whose depth a GPU cuts") {
  for (const int block : {32, 128}) check_long(block, {f16});
}
TEST_CASE("block-sparse epilogues: of few and long items of f32") {
  for (const Mode& mode : modes_of_f32())
    for (const int block : {64, 128}) check_long(block, mode);
}

TEST_CASE("block-sparse epilogues: of sdd of rows that are alike wherever they lie") {
  using namespace bs::epilogue;
  const int size = test_device().is_cuda() ? 4096 : 128;  // a GPU's items have rows of one kind
  for (const Transpose t : transposes)
    for (const int block : {16, 32}) {
      Mask mask(1, size / block, size / block, block, 0);
      for (int row = 0; row < mask.rows; ++row)
        for (int col = 0; col < mask.cols; ++col) mask.at(0, row, col) = row * 5 % 4 == col % 4;
      const LayoutPtr layout = mask.layout();
      const LayoutView view = layout->view(Device::cpu());
      const Tensor a = whole(flipped({size, 72}, t.a), 22), b = whole(flipped({72, size}, t.b), 23);
      const Value x = accumulator() + row("r", Element::f16) + column("c", Element::f16);
      const Tensor r = whole({size}, 24), c = whole({size}, 25);
      const Tensor sums = sdd(a, b, layout, t).values;
      const Tensor kept = Tensor::empty(sums.shape(), f16, test_device());
      const Reference got =
          Reference::of(sdd(a, b, layout, t,
                            {.epilogue = GemmEpilogue(relu(x)).store("x", x, Element::f16),
                             .tensors = {{"r", r}, {"c", c}, {"x", kept}}})
                            .values);
      const Reference of_row = Reference::of(r), of_column = Reference::of(c);
      const Reference before = Reference::of(kept), want = Reference::of(sums);
      size_t wrong = 0;
      for (size_t i = 0; i < want.values.size(); ++i) {
        const auto side = static_cast<size_t>(block), n = i / side / side;
        const size_t at_row = static_cast<size_t>(view.row_of[n]) * side + i / side % side;
        const size_t at_column = static_cast<size_t>(view.col_of[n]) * side + i % side;
        const double argument = want[i] + of_row[at_column] + of_column[at_row];
        wrong += before[i] != argument || got[i] != std::max(argument, 0.0);
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("block-sparse epilogues: a tensor times a scalar of 0 is not read, nor needed") {
  using namespace bs::epilogue;
  const Problem p = make({"dsd", Mask::random(1, 3, 4, 16, 0.5, 8), 24}, f32);
  const ProductOptions options{.epilogue = GemmEpilogue::linear_combination(Element::f32),
                               .scalars = {{"alpha", 2}, {"beta", 0}}};
  Reference expected = p.sums;
  for (double& x : expected.values) x *= 2;
  check_close("alpha", Reference::of(p.run(options)), expected, 1e-5);
}

TEST_CASE("block-sparse epilogues: operands may be views, and broadcast over batches") {
  using namespace bs::epilogue;
  const Mask mask = Mask::random(1, 3, 4, 16, 0.5, 9);
  const Problem p = make({"dsd", mask, 24, {}, {2, 3}, {3}}, f32);
  const GemmEpilogue e(accumulator() + row("r", Element::f32) * tensor("z", Element::f32));
  // One row vector for each of the first axis, one tensor for each of the second, transposed.
  const Reference r = random_reference({2, 1, 24}, 10), z = random_reference({3, 24, 48}, 11);
  const Tensor view = z.tensor(f32, test_device()).transpose(1, 2);
  const Reference actual = Reference::of(
      p.run({.epilogue = e, .tensors = {{"r", r.tensor(f32, test_device())}, {"z", view}}}));
  Reference expected = p.sums;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t i = 0; i < 48; ++i)
        for (int64_t j = 0; j < 24; ++j)
          expected.at({b, c, i, j}) += r.at({b, 0, j}) * z.at({c, j, i});
  check_close("views", actual, expected, 1e-5);
}

TEST_CASE("block-sparse products: tf32 rounds the operands to 10 bits, no further") {
  const TF32Guard guard;
  for (const char* op : {"sdd", "dsd", "dds"})
    for (const Transpose t : transposes)
      for (const int block : {8, 16, 64}) {
        const Problem p = make({op, Mask::random(1, 3, 4, block, 0.5, 12), 72, t}, f32);
        // Each product of two factors below 1 is off by 2^-11 for each of them at most, if both
        // have the same sign everywhere; here signs differ, and errors add up like a random walk.
        const double tolerance = 0x1p-9 * largest(p.sums);
        check_close(op, Reference::of(p.run({})), p.sums, tolerance);
      }
}
