#include <bs/autograd/block_sparse_matmul.h>
#include <bs/kernels/block_sparse_matmul.h>
#include <bs/lib/profiler.h>
#include <bs/lib/threads.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <bs/tests/support/sanitized.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

#include <random>

using namespace bs;
using namespace bs::test;

namespace {

constexpr Transpose transposes[] = {{}, {.b = true}, {.a = true}, {.a = true, .b = true}};

/// Shapes of the two operands around a mask: the free dimension is `n`, batch axes go in front.
struct Batch {
  Shape left, right;
};

void check_sdd(const Mask& mask, int64_t k, Transpose t, Batch batch = {}) {
  check_op(
      {.name = "sdd",
       .inputs = {flipped(mask.dense(batch.left, mask.height(), k), t.a),
                  flipped(mask.dense(batch.right, k, mask.width()), t.b)},
       .op = [&](const Variables& v) { return sdd(v[0], v[1], mask.layout(), t).values; },
       .reference =
           [&](const References& in) { return sparsify(product(in[0], in[1], t.a, t.b), mask); }});
}

void check_dsd(const Mask& mask, int64_t n, Transpose t, Batch batch = {}) {
  const int64_t k = t.a ? mask.height() : mask.width();
  check_op(
      {.name = "dsd",
       .inputs = {mask.values(batch.left), flipped(mask.dense(batch.right, k, n), t.b)},
       .op =
           [&](const Variables& v) {
             return dsd({mask.layout(), v[0]}, v[1], t);
           },
       .reference =
           [&](const References& in) { return product(densify(in[0], mask), in[1], t.a, t.b); }});
}

void check_dds(const Mask& mask, int64_t m, Transpose t, Batch batch = {}) {
  const int64_t k = t.b ? mask.width() : mask.height();
  check_op(
      {.name = "dds",
       .inputs = {flipped(mask.dense(batch.left, m, k), t.a), mask.values(batch.right)},
       .op =
           [&](const Variables& v) {
             return dds(v[0], {mask.layout(), v[1]}, t);
           },
       .reference =
           [&](const References& in) { return product(in[0], densify(in[1], mask), t.a, t.b); }});
}

void check_all(const Mask& mask, int64_t n, Transpose t, Batch batch = {}) {
  check_sdd(mask, n, t, batch);
  check_dsd(mask, n, t, batch);
  check_dds(mask, n, t, batch);
}

}  // namespace

TEST_CASE("block-sparse products: every transposition, one head and several") {
  int number = 0;
  for (const Mask& mask : {Mask::random(1, 3, 4, 8, 0.5, 1), Mask::random(3, 2, 3, 8, 0.5, 2)})
    for (Transpose t : transposes)
      if (is_sampled(number++)) check_all(mask, 5, t);
}

TEST_CASE("block-sparse products: every block size") {
  int number = 0;
  for (int block : {16, 32, 64, 128})
    for (Transpose t : {transposes[0], transposes[3]})
      if (is_sampled(number++)) check_all(Mask::random(1, 2, 2, block, 0.6, 3), 9, t);
}

TEST_CASE("block-sparse products: leading axes broadcast, and gradients are summed over them") {
  const Mask one = Mask::random(1, 2, 3, 8, 0.5, 4), two = Mask::random(2, 3, 2, 8, 0.5, 5);
  for (const Batch& batch : {Batch{{3}, {3}}, Batch{{}, {3}}, Batch{{3}, {}}, Batch{{2, 3}, {3}},
                             Batch{{1, 3}, {2, 1}}, Batch{{1}, {1}}})
    for (Transpose t : {transposes[0], transposes[1], transposes[2]}) {
      check_all(one, 3, t, batch);
      check_all(two, 3, t, batch);
    }
}

TEST_CASE("block-sparse products: one dense matrix serves all heads") {
  const Mask mask = Mask::random(3, 2, 2, 8, 0.6, 6);
  const LayoutPtr layout = mask.layout();
  for (Transpose t : transposes) {
    check_op({.name = "sdd over heads",
              .inputs = {flipped({2, 1, 16, 5}, t.a), flipped({3, 5, 16}, t.b)},
              .op = [&](const Variables& v) { return sdd(v[0], v[1], layout, t).values; },
              .reference =
                  [&](const References& in) {
                    return sparsify(product(in[0], in[1], t.a, t.b), mask);
                  }});
    check_op(
        {.name = "dsd over heads",
         .inputs = {mask.values({2}), flipped({1, 16, 5}, t.b)},
         .op =
             [&](const Variables& v) {
               return dsd({layout, v[0]}, v[1], t);
             },
         .reference =
             [&](const References& in) { return product(densify(in[0], mask), in[1], t.a, t.b); }});
    check_op(
        {.name = "dds over heads",
         .inputs = {flipped({2, 1, 5, 16}, t.a), mask.values()},
         .op =
             [&](const Variables& v) {
               return dds(v[0], {layout, v[1]}, t);
             },
         .reference =
             [&](const References& in) { return product(in[0], densify(in[1], mask), t.a, t.b); }});
  }
}

TEST_CASE("block-sparse products: edges") {
  Mask holes(2, 3, 4, 8);  // head 1 is empty; in head 0 an empty row and two empty columns
  holes.at(0, 0, 1) = holes.at(0, 2, 1) = holes.at(0, 2, 2) = 1;
  const Mask empty(1, 2, 3, 16), full(1, 2, 2, 16, 1), nothing(1, 0, 2, 8), line(1, 1, 5, 8, 1);
  int number = 0;
  for (Transpose t : transposes)
    for (const Mask& mask : {holes, empty, full, nothing, line})
      for (int64_t n : {0, 1, 33})
        if (is_sampled(number++)) check_all(mask, n, t);
  check_all(full, 3, {}, {{0}, {0}});
}

TEST_CASE("block-sparse products: gradients that sum no products are zeros") {
  for (const Batch& batch : {Batch{{}, {0}}, Batch{{0}, {}}, Batch{{1}, {0}}, Batch{{0, 2}, {2}}})
    for (const Transpose t : transposes) {
      check_all(Mask(1, 2, 3, 32, 1), 8, t, batch);
      check_all(Mask(2, 3, 2, 16, 1), 8, t, batch);
    }
  const Profiler profiler;  // counts products of each head, of which there are none
  const LayoutPtr none = Layout::from_blocks(0, 2, 2, 16, {});
  const auto of_heads = [](const Shape& shape) { return Tensor::empty(shape, f16, test_device()); };
  const SparseTensor s{none, of_heads({0, 16, 16})};
  for (const Tensor& gradient : {dsd_backward_b(s, of_heads({0, 32, 8}), {1, 32, 8}),
                                 dds_backward_a(of_heads({0, 8, 32}), s, {1, 8, 32}),
                                 sdd_backward_a(s, of_heads({0, 8, 32}), {1, 32, 8})}) {
    CHECK(gradient.numel() == 32 * 8);
    for (const double x : Reference::of(gradient).values) CHECK(x == 0);
  }
}

TEST_CASE("block-sparse products: views are read where they lie") {
  const Mask mask = Mask::random(2, 3, 2, 16, 0.6, 7);
  const LayoutPtr layout = mask.layout();
  // [batch, position, head, feature], as attention keeps it, seen as [batch, head, position, ...].
  const Reference x = random_reference({2, 48, 2, 9}, 8), y = random_reference({2, 32, 2, 9}, 9);
  const Tensor a = x.tensor(f32, test_device()).permute({0, 2, 1, 3});
  const Tensor b = y.tensor(f32, test_device()).permute({0, 2, 1, 3});
  const auto dense = [](const Tensor& t) { return Reference::of(t).tensor(f32, test_device()); };
  const SparseTensor s = sdd(a, b, layout, {.b = true});
  CHECK(Reference::of(s.values).values ==
        Reference::of(sdd(dense(a), dense(b), layout, {.b = true}).values).values);
  CHECK(Reference::of(dsd(s, b)).values == Reference::of(dsd(s, dense(b))).values);
  CHECK(Reference::of(dds(a, s, {.a = true})).values ==
        Reference::of(dds(dense(a), s, {.a = true})).values);
  // No unit stride at all, and values with gaps between matrices.
  const Tensor wide = random_reference({2, 2, 32, 18}, 10).tensor(f32, test_device());
  const Tensor gaps = wide.slice(3, 0, 18, 2);
  CHECK(Reference::of(dsd(s, gaps)).values == Reference::of(dsd(s, dense(gaps))).values);
  const SparseTensor every_second{
      layout, random_reference(mask.values({4}), 11).tensor(f32, test_device()).slice(0, 0, 4, 2)};
  CHECK(Reference::of(dsd(every_second, b)).values ==
        Reference::of(dsd({layout, dense(every_second.values)}, b)).values);
}

namespace {

/// A factor of a product in the reference: a dense array, and whether it is transposed.
struct Factor {
  const Reference& x;
  bool transposed;
};

/// Samples of `actual` (masked where `mask` is given) against sums in double, all [3, 2, ., .].
void check_samples(const std::string& what, const Reference& actual, const Mask* mask, Factor a,
                   Factor b, double eps) {
  const int64_t m = actual.shape[2], n = actual.shape[3], k = a.x.shape[a.transposed ? 2 : 3];
  const auto at = [](const Factor& f, int64_t matrix, int64_t i, int64_t j) {
    if (f.transposed) std::swap(i, j);
    return f.x[static_cast<size_t>((matrix * f.x.shape[2] + i) * f.x.shape[3] + j)];
  };
  std::mt19937_64 generator(1);
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(generator() % static_cast<uint64_t>(most));
  };
  double worst = 0, top = 0;
  for (int sample = 0; sample < 2000; ++sample) {
    const int64_t z = below(3), h = below(2), i = below(m), j = below(n);
    double expected = 0;
    if (!mask || mask->has(int(h), int(i / mask->block), int(j / mask->block)))
      for (int64_t l = 0; l < k; ++l) expected += at(a, z * 2 + h, i, l) * at(b, z * 2 + h, l, j);
    worst = std::max(worst, std::abs(actual.at({z, h, i, j}) - expected));
    top = std::max(top, std::abs(expected));
  }
  CHECK_MESSAGE(worst <= 16 * eps * top, what, ": error ", worst, " of ", top);
}

/// Result and gradients of one product, 256 x 384 by 384 x 512, of which one matrix is sparse: 0
/// the result, 1 the left operand, 2 the right one.
void check_large(int sparse, int block, Transpose t, DType dtype) {
  constexpr int64_t m = 256, n = 512, k = 384;
  const Shape shapes[] = {{3, 2, m, n}, flipped({3, 2, m, k}, t.a), flipped({3, 2, k, n}, t.b)};
  const Shape& stored = shapes[sparse];
  const Mask mask = Mask::random(2, static_cast<int>(stored[2]) / block,
                                 static_cast<int>(stored[3]) / block, block, 0.5, 2);
  const LayoutPtr layout = mask.layout();
  Reference drawn[3];
  Tensor tensors[3];
  for (int i = 0; i < 3; ++i) {
    const Shape shape = i == sparse ? mask.values({3}) : shapes[i];
    tensors[i] =
        random_reference(shape, static_cast<uint64_t>(i) + 3, 0, 1).tensor(dtype, test_device());
    drawn[i] = Reference::of(tensors[i]);
    if (i == sparse) drawn[i] = densify(drawn[i], mask);
  }
  const Variable a(tensors[1], true), b(tensors[2], true);
  const Variable c = sparse == 0   ? sdd(a, b, layout, t).values
                     : sparse == 1 ? dsd({layout, a}, b, t)
                                   : dds(a, {layout, b}, t);
  c.backward(tensors[0]);
  const auto dense = [&](const Tensor& x, int i) {
    const Reference r = Reference::of(x);
    return i == sparse ? densify(r, mask) : r;
  };
  const auto masked = [&](int i) { return i == sparse ? &mask : nullptr; };
  const Reference &dc = drawn[0], &left = drawn[1], &right = drawn[2];
  const std::string what =
      format("operand {} sparse, block {}, transposed {} {}, {}", sparse, block, t.a, t.b, dtype);
  const double eps = epsilon(dtype);
  check_samples(what + " c", dense(c.data(), 0), masked(0), {left, t.a}, {right, t.b}, eps);
  const Factor a_left = t.a ? Factor{right, t.b} : Factor{dc, false};
  const Factor a_right = t.a ? Factor{dc, true} : Factor{right, !t.b};
  check_samples(what + " da", dense(a.grad(), 1), masked(1), a_left, a_right, eps);
  const Factor b_left = t.b ? Factor{dc, true} : Factor{left, !t.a};
  const Factor b_right = t.b ? Factor{left, t.a} : Factor{dc, false};
  check_samples(what + " db", dense(b.grad(), 2), masked(2), b_left, b_right, eps);
}

}  // namespace

TEST_CASE("block-sparse products: the sizes of Torch-Blocksparse's tests") {
  int number = 0;
  const auto check = [&](int sparse, int block, Transpose t, DType dtype) {
    if (is_sampled(number++)) check_large(sparse, block, t, dtype);
  };
  for (DType dtype : {f16, f32})
    for (int sparse : {0, 1, 2}) {
      check(sparse, 32, {}, dtype);
      if (dtype == f16 && test_device().is_cpu()) continue;  // which computes both alike
      for (int i : {1, 2, 3}) check(sparse, 32, transposes[i], dtype);
      for (int block : {16, 64}) check(sparse, block, {}, dtype);
    }
}

TEST_CASE("block-sparse products: the same bits from any number of threads") {
  const Mask mask = Mask::random(1, 16, 12, 16, 0.3, 12);
  const SparseTensor s{mask.layout(),
                       random_reference(mask.values({3}), 13).tensor(f32, test_device())};
  const Tensor x = random_reference({3, 192, 150}, 14).tensor(f32, test_device());
  const Tensor y = random_reference({3, 256, 150}, 15).tensor(f32, test_device());
  const int before = threads();
  std::vector<std::vector<double>> runs;
  for (int threads : {1, 2, 5}) {
    set_threads(threads);
    runs.push_back(Reference::of(dsd(s, x)).values);
    runs.push_back(Reference::of(sdd(y, x, s.layout, {.b = true}).values).values);
    runs.push_back(Reference::of(dsd_backward_s(y, x, s.layout, mask.values())).values);
  }
  set_threads(before);
  for (size_t i = 3; i < runs.size(); ++i) CHECK(runs[i] == runs[i % 3]);
}

TEST_CASE("block-sparse products: thousands of small layouts") {
  std::mt19937_64 generator(16);
  const auto upto = [&](int64_t most) {
    return static_cast<int64_t>(generator() % static_cast<uint64_t>(most + 1));
  };
  const auto worst = [](const Tensor& actual, const Reference& expected) {
    const Reference got = Reference::of(actual);
    REQUIRE(got.shape == expected.shape);
    double error = 0;
    for (size_t i = 0; i < got.values.size(); ++i)
      error = std::max(error, std::abs(got[i] - expected[i]));
    return error;
  };
  for (int round = 0; round < 2000; ++round) {
    const int block = 8 << upto(1);
    const Mask mask =
        Mask::random(static_cast<int>(1 + upto(2)), static_cast<int>(upto(4)),
                     static_cast<int>(upto(4)), block, 0.1 * double(upto(10)), generator());
    const Transpose t = transposes[upto(3)];
    const int64_t n = 1 + upto(20);
    const Shape lead = upto(1) ? Shape{1 + upto(2)} : Shape{};
    const int64_t k = t.a ? mask.height() : mask.width();
    const Reference s = random_reference(mask.values(upto(1) ? lead : Shape{}), generator());
    const Reference b = random_reference(flipped(mask.dense(lead, k, n), t.b), generator());
    const Reference expected = product(densify(s, mask), b, t.a, t.b);
    const Tensor values = s.tensor(f64, test_device()), x = b.tensor(f64, test_device());
    CAPTURE(round);
    CHECK(worst(dsd({mask.layout(), values}, x, t), expected) < 1e-13);
    const Reference a = random_reference(flipped(mask.dense(lead, mask.height(), n), t.a), round);
    const Reference c =
        random_reference(flipped(mask.dense(lead, n, mask.width()), t.b), generator());
    CHECK(worst(sdd(a.tensor(f64, test_device()), c.tensor(f64, test_device()), mask.layout(), t)
                    .values,
                sparsify(product(a, c, t.a, t.b), mask)) < 1e-13);
    const int64_t depth = t.b ? mask.width() : mask.height();
    const Reference d = random_reference(flipped(mask.dense(lead, n, depth), t.a), generator());
    CHECK(worst(dds(d.tensor(f64, test_device()), {mask.layout(), values}, t),
                product(d, densify(s, mask), t.a, t.b)) < 1e-13);
  }
}

TEST_CASE("block-sparse products refuse what does not fit") {
  const LayoutPtr layout = Mask(1, 16, 32, 16, 1).layout();
  // The sample of Torch-Blocksparse's README: with trans_a, a should have been [2, 4, 384, 256].
  const Tensor a = Tensor::empty({2, 4, 256, 384}, f32), b = Tensor::empty({2, 4, 384, 512}, f32);
  CHECK_THROWS_WITH_AS(
      sdd(a, b, layout, {.a = true}),
      "sdd: inner dimensions differ: op(a) is 384 x 256, op(b) is 384 x 512 (a [2, 4, 256, 384] "
      "transposed, b [2, 4, 384, 512])",
      Error);
  CHECK_THROWS_WITH_AS(
      sdd(Tensor::empty({384, 24}, f32), Tensor::empty({24, 512}, f32), layout),
      "sdd: op(a) op(b) is 384 x 512, but the layout of 16 x 32 blocks of 16 is 256 x 512 "
      "(a [384, 24], b [24, 512])",
      Error);
  const SparseTensor s{layout, Tensor::empty({512, 16, 16}, f32)};
  CHECK_THROWS_WITH_AS(dsd(s, Tensor::empty({256, 7}, f32)),
                       "dsd: inner dimensions differ: op(a) is 256 x 512, op(b) is 256 x 7 "
                       "(a 16 x 32 blocks of 16, b [256, 7])",
                       Error);
  CHECK_THROWS_WITH_AS(dds(Tensor::empty({7, 256}, f32), s, {.b = true}),
                       "dds: inner dimensions differ: op(a) is 7 x 256, op(b) is 512 x 256 "
                       "(a [7, 256], b 16 x 32 blocks of 16 transposed)",
                       Error);
  CHECK_THROWS_WITH_AS(dsd(s, Tensor::empty({512}, f32)), "dsd: b is [512], not a matrix", Error);
  CHECK_THROWS_WITH_AS(dsd(s, Tensor::empty({512, 7}, f64)), "dsd: dtypes f32 and f64 differ",
                       Error);
  const LayoutPtr heads = Mask(4, 2, 2, 8, 1).layout();
  const SparseTensor headed{heads, Tensor::empty({16, 8, 8}, f32)};
  CHECK_THROWS_WITH_AS(dsd(headed, Tensor::empty({3, 16, 5}, f32)),
                       "dsd: b [3, 16, 5] has no axis of 4 heads, or 1, before its last two",
                       Error);
  CHECK_THROWS_WITH_AS(
      sdd(Tensor::empty({16, 16}, i32), Tensor::empty({16, 16}, i32), Mask(1, 2, 2, 8, 1).layout()),
      "sdd: dtype i32 is not supported; expected f64, f32, f16 or bf16", Error);
  CHECK_THROWS_AS(
      dsd({layout, Tensor::empty({2, 512, 16, 16}, f32)}, Tensor::empty({3, 512, 7}, f32)), Error);
}
