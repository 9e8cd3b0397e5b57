#include <bs/kernels/block_sparse_convert.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/matmul.h>
#include <bs/tests/kernels/block_sparse_epilogue_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

constexpr double lowest = -std::numeric_limits<double>::infinity();

/// The four reductions of one run: sums and maxima over rows, over columns.
struct Reduced {
  Tensor row_sum, row_max, column_sum, column_max;

  Reduced(const Problem& p, DType dtype) {
    Shape rows = p.matrices, columns = p.matrices;
    rows.push_back(p.m);
    columns.push_back(p.n);
    for (Tensor* t : {&row_sum, &row_max}) *t = Tensor::empty(rows, dtype, test_device());
    for (Tensor* t : {&column_sum, &column_max}) *t = Tensor::empty(columns, dtype, test_device());
  }
};

/// Maxima over nothing are infinities, which no tolerance is for.
void check_maxima(const std::string& what, const Tensor& actual, const Reference& expected,
                  double tolerance) {
  Reference got = Reference::of(actual), want = expected;
  size_t wrong = 0;
  for (size_t i = 0; i < want.values.size(); ++i) {
    if (want[i] != lowest) continue;
    wrong += got[i] != lowest;
    got[i] = want[i] = 0;
  }
  CHECK_MESSAGE(wrong == 0, what);
  check_close(what, got, want, tolerance);
}

/// D = relu(t), t = alpha sum + row: sums of t, of t^2 over columns, and maxima of -t and D.
void check(const Case& c, DType dtype) {
  using namespace bs::epilogue;
  const Problem p = make(c, dtype);
  const DType wide = dtype == f64 ? f64 : f32;
  const std::vector<Place> at = places(c, p.sums);
  const Reference bias = drawn({p.n}, 3, dtype);
  const Value t = scalar("alpha") * accumulator() + row("r", element_of(dtype));
  const GemmEpilogue e = GemmEpilogue(relu(t))
                             .row_sum("row sums", t)
                             .column_sum("column sums", t * t)
                             .row_max("row maxima", -t)
                             .column_max("column maxima", relu(t));
  const Reduced first(p, wide), second(p, wide);
  Tensor d;
  for (const Reduced* r : {&first, &second})
    d = p.run({.epilogue = e,
               .tensors = {{"r", bias.tensor(dtype, test_device())},
                           {"row sums", r->row_sum},
                           {"column sums", r->column_sum},
                           {"row maxima", r->row_max},
                           {"column maxima", r->column_max}},
               .scalars = {{"alpha", 0.75}}});
  Reference result(p.sums.shape), row_sum(first.row_sum.shape()), row_max = row_sum;
  Reference column_sum(first.column_sum.shape()), column_max = column_sum;
  std::fill(row_max.values.begin(), row_max.values.end(), lowest);
  std::fill(column_max.values.begin(), column_max.values.end(), lowest);
  double size = 1;
  for (size_t i = 0; i < at.size(); ++i) {
    const double x = 0.75 * p.sums[i] + bias[static_cast<size_t>(at[i].column)];
    const auto of_row = static_cast<size_t>(at[i].matrix * p.m + at[i].row);
    const auto of_column = static_cast<size_t>(at[i].matrix * p.n + at[i].column);
    result[i] = std::max(x, 0.0);
    row_sum[of_row] += x;
    column_sum[of_column] += x * x;
    row_max[of_row] = std::max(row_max[of_row], -x);
    column_max[of_column] = std::max(column_max[of_column], std::max(x, 0.0));
    size = std::max(size, std::abs(x));
  }
  // Each element is off by some roundings of f32 (f64); a sum of them by all of theirs at most.
  const double one = 16 * epsilon(wide) * size;
  const std::string what = describe(c, dtype);
  check_close(what, Reference::of(d), result, 16 * epsilon(dtype) * size);
  check_close(what + " row sums", Reference::of(first.row_sum), row_sum,
              one * static_cast<double>(p.n));
  check_close(what + " column sums", Reference::of(first.column_sum), column_sum,
              2 * one * size * static_cast<double>(p.m));
  check_maxima(what + " row maxima", first.row_max, row_max, one);
  check_maxima(what + " column maxima", first.column_max, column_max, one);
  CHECK(same_bits(first.row_sum, second.row_sum));
  CHECK(same_bits(first.column_sum, second.column_sum));
}

void check_transposes(const char* op) {
  for (const Transpose t : transposes)
    for (const DType dtype : {f32, bf16}) {
      check({op, Mask::random(1, 3, 4, 16, 0.5, 2), 40, t, {2, 3}, {3}}, dtype);
      check({op, Mask::random(3, 2, 3, 64, 0.5, 3), 8, t, {2}, {}}, dtype);
    }
}

void check_sizes(const char* op) {
  for (const int block : {8, 16, 32, 64, 128})
    for (const int64_t free : {1, 7, 72, 264}) {
      check({op, Mask::random(1, 3, 2, block, 0.6, 4), free}, f16);
      if (block < 32) check({op, Mask::random(2, 2, 3, block, 0.6, 5), free}, f64);
    }
}

void check_f32(const char* op) {
  each_large_f32([&](const Mask& mask, Transpose t) {
    check({op, mask, 204, t, {2}, {}, true}, f32);
    check({op, mask, 197, t, {}, {2}, true}, f32);
  });
}

}  // namespace

TEST_CASE("block-sparse reductions: transposes and heads, sdd") { check_transposes("sdd"); }
TEST_CASE("block-sparse reductions: transposes and heads, dsd") { check_transposes("dsd"); }
TEST_CASE("block-sparse reductions: transposes and heads, dds") { check_transposes("dds"); }
TEST_CASE("block-sparse reductions: blocks and sizes, sdd") { check_sizes("sdd"); }
TEST_CASE("block-sparse reductions: blocks and sizes, dsd") { check_sizes("dsd"); }
TEST_CASE("block-sparse reductions: blocks and sizes, dds") { check_sizes("dds"); }

TEST_CASE("block-sparse reductions: f32 with large blocks, sdd") { check_f32("sdd"); }
TEST_CASE("block-sparse reductions: f32 with large blocks, dsd") { check_f32("dsd"); }
TEST_CASE("block-sparse reductions: f32 with large blocks, dds") { check_f32("dds"); }

// Tensor cores cut off what they add, a little each step: only whole numbers have sums of this
// length that some roundings bound.
TEST_CASE("block-sparse reductions: of several heads of few and long items") {
  const int longer = large_on_gpu(128, 16);
  for (const Transpose t : {transposes[0], transposes[3]}) {
    const Mask mask =
        t.a ? Mask::random(2, longer, 4, 32, 0.7, 23) : Mask::random(2, 4, longer, 32, 0.7, 23);
    check({"dsd", mask, 40, t, {}, {}, true}, bf16);
    const Mask other =
        t.b ? Mask::random(2, 4, longer, 32, 0.7, 24) : Mask::random(2, longer, 4, 32, 0.7, 24);
    check({"dds", other, 40, t, {}, {}, true}, bf16);
    check({"sdd", Mask::random(2, 5, 4, 32, 0.7, 25), large_on_gpu(2000, 250), t, {}, {}, true},
          bf16);
  }
}

TEST_CASE("block-sparse reductions: over nothing, sums are 0 and maxima the least number") {
  Mask holes(2, 3, 4, 16);  // head 1 is empty; in head 0 an empty row and two empty columns
  holes.at(0, 0, 1) = holes.at(0, 2, 1) = holes.at(0, 2, 2) = 1;
  for (const char* op : {"sdd", "dsd", "dds"})
    for (const DType dtype : {f32, f16}) {
      check({op, holes, 24}, dtype);
      check({op, holes, 24, {}, {2}, {2}}, dtype);
      check({op, Mask(1, 2, 3, 16), 24}, dtype);   // no block
      check({op, Mask(2, 0, 2, 8), 3}, dtype);     // no row
      check({op, Mask(1, 2, 2, 8, 1), 0}, dtype);  // no depth, or no other axis
      check({op, Mask(1, 2, 2, 16, 1), 5, {}, {0}, {0}}, dtype);
    }
}

namespace {

/// Reductions of whole numbers are exact in any order, as long as f32 holds them.
void check_exact(const Reference& sums, const std::function<void(const ProductOptions&)>& run) {
  using namespace bs::epilogue;
  const int64_t m = sums.shape[0], n = sums.shape[1];
  const Tensor rows = Tensor::empty({m}, f32, test_device());
  const Tensor columns = Tensor::empty({n}, f32, test_device());
  run({.epilogue = GemmEpilogue(accumulator())
                       .row_sum("rows", accumulator())
                       .column_max("columns", accumulator()),
       .tensors = {{"rows", rows}, {"columns", columns}}});
  Reference of_rows({m}), of_columns({n});
  std::fill(of_columns.values.begin(), of_columns.values.end(), lowest);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double x = sums.at({i, j});
      if (std::isnan(x)) continue;  // no such block
      of_rows.at({i}) += x;
      of_columns.at({j}) = std::max(of_columns.at({j}), x);
    }
  CHECK(Reference::of(rows).values == of_rows.values);
  CHECK(Reference::of(columns).values == of_columns.values);
}

/// dsd and dds of a matrix with `outer` rows or columns, against dense products.
void check_exact(const Mask& mask, int64_t outer, Transpose t) {
  const SparseTensor s{mask.layout(), whole(mask.values(), 14)};
  const Tensor stored = to_dense(s);
  for (const bool left : {false, true}) {
    const int64_t k = left == (left ? t.b : t.a) ? mask.width() : mask.height();
    const Tensor dense = whole(left ? flipped({outer, k}, t.a) : flipped({k, outer}, t.b), 15);
    const Tensor sums = left ? matmul(turned(dense, t.a), turned(stored, t.b))
                             : matmul(turned(stored, t.a), turned(dense, t.b));
    check_exact(Reference::of(sums), [&](const ProductOptions& options) {
      left ? dds(dense, s, t, options) : dsd(s, dense, t, options);
    });
  }
}

}  // namespace

TEST_CASE("block-sparse reductions: beside the same value stored, each has a kernel of its own") {
  using namespace bs::epilogue;
  const Mask mask = Mask::random(1, 3, 2, 16, 0.6, 26);
  const SparseTensor s{mask.layout(), whole(mask.values(), 27)};
  const Tensor b = whole({32, 40}, 28);
  const Value t = accumulator() * 2.0;
  const Tensor stored = Tensor::empty({48, 40}, f32, test_device());
  const Tensor most = Tensor::empty({40}, f32, test_device());
  dsd(s, b, {},
      {.epilogue = GemmEpilogue(t).store("x", t, Element::f32), .tensors = {{"x", stored}}});
  dsd(s, b, {}, {.epilogue = GemmEpilogue(t).column_max("x", t), .tensors = {{"x", most}}});
  const Reference sums = Reference::of(matmul(to_dense(s), b)), x = Reference::of(stored);
  Reference of_columns({40});
  std::fill(of_columns.values.begin(), of_columns.values.end(), lowest);
  size_t wrong = 0;
  for (int64_t i = 0; i < 48; ++i)
    for (int64_t j = 0; j < 40; ++j) {
      wrong += x.at({i, j}) != 2 * sums.at({i, j});
      of_columns.at({j}) = std::max(of_columns.at({j}), 2 * sums.at({i, j}));
    }
  CHECK(wrong == 0);
  CHECK(Reference::of(most).values == of_columns.values);
}

TEST_CASE("block-sparse reductions: of layouts that are all but dense") {
  // Large enough for a GPU to go by way of a dense product.
  const int rows = large_on_gpu(160, 20), cols = large_on_gpu(144, 18);
  check_exact(Mask::random(1, rows, cols, 16, 0.9, 13), large_on_gpu(2048, 256), {.b = true});
}

TEST_CASE("block-sparse reductions: of few and long items, whose depth a GPU cuts") {
  const int depth = large_on_gpu(4096, 512);
  for (const int block : {32, 128}) {
    const Mask wide = Mask::random(1, 256 / block, depth / block, block, 0.7, 17);
    const Mask high = Mask::random(1, depth / block, 256 / block, block, 0.7, 18);
    check_exact(wide, 200, {});
    check_exact(high, 200, {.a = true, .b = true});
  }
  for (const int block : {32, 128}) {
    const Mask mask = Mask::random(1, 256 / block, 384 / block, block, 0.5, 19);
    const Tensor a = whole({256, depth}, 20), b = whole({depth, 384}, 21);
    Reference sums = Reference::of(matmul(a, b));
    for (int64_t i = 0; i < 256; ++i)
      for (int64_t j = 0; j < 384; ++j)
        if (!mask.has(0, static_cast<int>(i / block), static_cast<int>(j / block)))
          sums.at({i, j}) = std::nan("");
    check_exact(sums,
                [&](const ProductOptions& options) { sdd(a, b, mask.layout(), {}, options); });
  }
}
