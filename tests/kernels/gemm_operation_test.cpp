#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/tests/kernels/gemm_cases.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace bs;
using namespace bs::test;

namespace {

constexpr Element f16e = Element::f16, f32e = Element::f32, f64e = Element::f64;

/// The CPU's twin knows no tiles: some whole vectors and a rest are all the sizes there are to it.
int64_t extent(int64_t on_gpu) {
  return test_device().is_cuda() ? on_gpu : std::min(on_gpu, on_gpu / 64 * 16 + 16);
}

void run_case(const GemmCase& c) {
  CAPTURE(c.name);
  CAPTURE(to_string(c.description.tile));
  CAPTURE(c.slices);
  const Linear x(c.description, {}, extent(c.m), extent(c.n), extent(c.k), 2080);
  GemmOperation(c.description).run(x.arguments(c.alpha, c.beta, c.slices));
  x.check(c.alpha, c.beta);
}

}  // namespace

TEST_CASE("gemm: PyCUTLASS' example commands, bit for bit") {
  for (const GemmCase& c : example_cases()) run_case(c);
}

TEST_CASE("gemm: every portable instruction in every layout, bit for bit") {
  int number = 0;
  for (const GemmCase& c : portable_cases())
    if (is_sampled(number++)) run_case(c);
}

TEST_CASE("gemm: warpgroups, bit for bit") {
  int number = 0;
  for (const GemmCase& c : warpgroup_cases())
    if (is_sampled(number++)) run_case(c);
}

TEST_CASE("gemm: sizes around the tiles, and slices of the depth") {
  for (const SplitK split : {SplitK::serial, SplitK::parallel})
    for (const int slices : {1, 2, 3, 5, 7, 201}) {
      GemmDescription d = small_gemm("rcr", f32e);
      d.split_k = split;
      const GemmOperation operation(d);
      for (const int64_t m : {8, 512 - 3 * 8})
        for (const int64_t n : {8, 72})
          for (const int64_t k : {8, 32 * 3 - 8, 3 * 32 * 3 - 8}) {
            CAPTURE(slices);
            const Linear x(d, {}, m, n, k, 11);
            operation.run(x.arguments(1, 2, slices));
            x.check(1, 2);
          }
    }
}

TEST_CASE("gemm: batches, arrays and groups") {
  for (const std::string layouts : {"rcr", "crc"}) {
    GemmDescription d = small_gemm(layouts);
    d.mode = GemmMode::batched;
    const Linear batch(d, {3}, 104, 72, 40, 5);
    GemmOperation(d).run(batch.arguments(1, 0.5));
    batch.check(1, 0.5);
    d.split_k = SplitK::parallel;
    const Linear split(d, {3}, 104, 72, 144, 6);
    GemmOperation(d).run(split.arguments(1, 0.5, 3));
    split.check(1, 0.5);
    d.split_k = SplitK::none;
    for (const auto& [mode, scheduler] : {std::pair{GemmMode::array, GemmScheduler::device},
                                          std::pair{GemmMode::grouped, GemmScheduler::device},
                                          std::pair{GemmMode::grouped, GemmScheduler::host}}) {
      d.mode = mode;
      d.scheduler = scheduler;
      std::vector<Linear> products;
      std::vector<GemmArguments> arguments;
      const bool one_shape = mode == GemmMode::array;
      for (const int64_t size : {128, 8, 512, 200})
        products.emplace_back(d, Shape{}, one_shape ? 128 : size, one_shape ? 72 : size - 8 + 8,
                              one_shape ? 40 : 2 * size, 7);
      for (const Linear& x : products) arguments.push_back(x.arguments(2, 1));
      GemmOperation(d).run(arguments);
      for (const Linear& x : products) x.check(2, 1);
    }
  }
}

TEST_CASE("gemm: grouped products of f64 and of plain arithmetic") {
  std::vector<GemmDescription> descriptions = {
      describe(math(f64e, f64e), {64, 64, 16}, 4, {2, 2, 1}, "rrr", f64e),
      describe(math(f32e, f32e, OpClass::simt), {64, 64, 8}, 3, {2, 2, 1}, "rcr", f32e)};
  for (GemmDescription& d : descriptions) {
    d.mode = GemmMode::grouped;
    d.scheduler = GemmScheduler::host;
    std::vector<Linear> products;
    std::vector<GemmArguments> arguments;
    products.emplace_back(d, Shape{}, 128, 128, 128, 1);
    products.emplace_back(d, Shape{}, 128, 128, 256, 2);
    products.emplace_back(d, Shape{}, 512, 128, 384, 3);
    for (const Linear& x : products) arguments.push_back(x.arguments(1, 1));
    GemmOperation(d).run(arguments);
    for (const Linear& x : products) x.check(1, 1);
  }
}

TEST_CASE("gemm: one operand serves a batch, views with strides, and nothing to sum") {
  GemmDescription d = small_gemm();
  d.mode = GemmMode::batched;
  const Linear x(d, {2}, 70, 40, 48, 9);
  GemmArguments arguments = x.arguments(1, 0);
  arguments.tensors.clear();  // beta is 0
  arguments.b = x.b.tensor.select(0, 1);
  GemmOperation(d).run(arguments);
  Matrix b = x.b;
  std::copy_n(b.values.begin() + 48 * 40, 48 * 40, b.values.begin());
  const std::vector<double> expected = product(x.a, b);
  CHECK(x.d.read() == expected);

  d.mode = GemmMode::gemm;
  const Linear wide(d, {}, 70, 40, 48, 10);
  const Linear part(d, {}, 64, 32, 40, 10);
  GemmArguments cut = wide.arguments(1, 0);
  cut.a = wide.a.tensor.slice(0, 0, 64).slice(1, 8, 48);
  cut.b = wide.b.tensor.slice(0, 8, 48).slice(1, 0, 32);
  cut.d = part.d.tensor;
  cut.tensors = {{"c", part.c.tensor}};
  GemmOperation(d).run(cut);
  const std::vector<double> actual = part.d.read();
  for (int64_t i = 0; i < 64; ++i)
    for (int64_t j = 0; j < 32; ++j) {
      double sum = 0;
      for (int64_t k = 8; k < 48; ++k) sum += wide.a.at(i, k) * wide.b.at(k, j);
      REQUIRE(actual[static_cast<size_t>(i * 32 + j)] == sum);
    }

  const Linear nothing(d, {}, 24, 16, 0, 12);
  GemmOperation(d).run(nothing.arguments(1, 2));
  nothing.check(1, 2);
  const Linear empty(d, {}, 0, 16, 8, 12);
  GemmOperation(d).run(empty.arguments(1, 2));
}

TEST_CASE("gemm: a result may be C itself, and lie over nothing else that is read") {
  const GemmDescription d = small_gemm("rrr", f32e);
  const Linear x(d, {}, 48, 48, 48, 13);
  GemmArguments arguments = x.arguments(2, 3);
  copy(arguments.tensors.at("c"), arguments.d);
  arguments.tensors = {{"c", arguments.d}};
  GemmOperation(d).run(arguments);
  x.check(2, 3);

  const Tensor wide = zeros({48, 144}, arguments.a.dtype(), test_device());
  const auto columns = [&](int64_t first) { return wide.slice(1, first, first + 48); };
  copy(x.a.tensor, columns(0));
  copy(x.b.tensor, columns(48));
  const GemmOperation product(small_gemm("rrr"));
  product.run({.a = columns(0),
               .b = columns(48),
               .d = columns(96),
               .scalars = {{"alpha", 1}, {"beta", 0}}});
  CHECK(Reference::of(columns(96)).values == bs::test::product(x.a, x.b));
  const auto refused = [&](GemmArguments wrong, const char* text) {
    wrong.scalars = {{"alpha", 1}, {"beta", 1}};
    CHECK_THROWS_WITH_AS(product.run(wrong), doctest::Contains(text), Error);
  };
  const Tensor c = zeros({48, 48}, f16, test_device());
  refused({.a = c, .b = columns(0), .d = c, .tensors = {{"c", c}}}, "gemm: d overlaps a");
  refused({.a = columns(0), .b = c, .d = c, .tensors = {{"c", c}}}, "gemm: d overlaps b");
  refused({.a = columns(0), .b = columns(48), .d = c, .tensors = {{"c", c.transpose(0, 1)}}},
          "gemm: d overlaps c, which is read while it is written");
  refused({.a = columns(0), .b = columns(48), .d = columns(80), .tensors = {{"c", c}}},
          "gemm: d overlaps b");
  product.run({.a = columns(0),
               .b = columns(48),
               .d = c,
               .tensors = {{"c", c.transpose(0, 1)}},
               .scalars = {{"alpha", 1}, {"beta", 0}}});  // which is not read
}

TEST_CASE("gemm: results of an epilogue overlap neither each other nor what is read") {
  using namespace bs::epilogue;
  GemmDescription d = small_gemm("rrr");
  const Value t = accumulator() + row("bias", f32e);
  d.epilogue = GemmEpilogue(t).store("before", accumulator(), f16e).row_sum("sums", t);
  const GemmOperation operation(d);
  const Tensor a = zeros({48, 48}, f16, test_device()), y = zeros({48, 48}, f16, test_device());
  const Tensor numbers = zeros({96}, f32, test_device());
  const auto half = [&](int64_t first) { return numbers.slice(0, first, first + 48); };
  const auto run = [&](const Tensor& before, const Tensor& sums) {
    operation.run({.a = a,
                   .b = a,
                   .d = y,
                   .tensors = {{"bias", half(0)}, {"before", before}, {"sums", sums}}});
  };
  run(clone(y), half(48));
  CHECK_THROWS_WITH_AS(run(y, half(48)), doctest::Contains("gemm: before overlaps d"), Error);
  CHECK_THROWS_WITH_AS(run(clone(y), half(8)), doctest::Contains("gemm: sums overlaps bias"),
                       Error);
}

TEST_CASE("gemm: grouped warpgroups") {
  GemmDescription d =
      describe(math(f16e, f32e, OpClass::warpgroup), {128, 64, 64}, 4, {8, 1, 1}, "rcr", f16e);
  d.mode = GemmMode::grouped;
  for (const GemmScheduler scheduler : {GemmScheduler::device, GemmScheduler::host}) {
    d.scheduler = scheduler;
    std::vector<Linear> products;
    std::vector<GemmArguments> arguments;
    for (const int64_t size : {128, 8, 512, 200})
      products.emplace_back(d, Shape{}, size, size + 8, 2 * size, 7);
    for (const Linear& x : products) arguments.push_back(x.arguments(2, 1));
    GemmOperation(d).run(arguments);
    for (const Linear& x : products) x.check(2, 1);
  }
}

TEST_CASE(
    "gemm: batches for clusters of warpgroups, more than one tile each, twice the same bits") {
  for (const auto& [m, n, depth] : {std::tuple{2, 1, 1}, {1, 2, 1}, {1, 1, 3}}) {
    GemmDescription d =
        describe(math(f16e, f32e, OpClass::warpgroup), {128, 64, 64}, 4, {8, 1, 1}, "rcr", f16e);
    d.tile.math.shape[1] = d.tile.threadblock[1] = 128;
    d.mode = GemmMode::batched;
    d.tile.cluster = {m, n};
    d.tile.cluster_k = depth;
    const GemmOperation operation(d);
    const int64_t size = extent(1032);  // 9 x 9 tiles
    const Linear x(d, {3}, size, size, extent(200), 6);
    operation.run(x.arguments(1, 0.5));
    x.check(1, 0.5);
    const std::vector<double> first = x.d.read();
    operation.run(x.arguments(1, 0.5));
    CHECK(x.d.read() == first);
  }
}

TEST_CASE("gemm: batches of operands in parts, and one that serves a batch") {
  for (const std::string layouts : {"rcr", "crc"}) {
    GemmDescription d = describe(math(f32e, f32e, OpClass::warpgroup, MathOperation::fast_f32),
                                 {64, 64, 32}, 3, {4, 1, 1}, layouts, f32e);
    d.mode = GemmMode::batched;
    const Linear batch(d, {3}, 104, 72, 100, 5);
    GemmOperation(d).run(batch.arguments(1, 0.5));
    batch.check(1, 0.5);
    GemmArguments arguments = batch.arguments(1, 0);
    arguments.b = batch.b.tensor.select(0, 1);
    GemmOperation(d).run(arguments);
    Matrix b = batch.b;
    for (const size_t other : {size_t{0}, size_t{2}})
      std::copy_n(batch.b.values.begin() + 7200, 7200,
                  b.values.begin() + static_cast<std::ptrdiff_t>(other * 7200));
    const std::vector<double> expected = product(batch.a, b);
    CHECK(batch.d.read() == expected);
  }
}

TEST_CASE("gemm: fast_f32 has the error of f32, tf32 that of tf32") {
  const int64_t m = 96, n = 80, k = 1000;
  const Reference p = random_reference({m, k}, 1), q = random_reference({k, n}, 2);
  std::vector<double> expected(static_cast<size_t>(m * n));
  const Tensor a = p.tensor(f32, test_device()), b = q.tensor(f32, test_device());
  const Reference pf = Reference::of(a), qf = Reference::of(b);
  for (size_t i = 0; i < size_t{m}; ++i)
    for (size_t l = 0; l < size_t{k}; ++l)
      for (size_t j = 0; j < size_t{n}; ++j) expected[i * n + j] += pf[i * k + l] * qf[l * n + j];
  const auto error = [&](MathOperation operation, OpClass op_class = OpClass::tensor_op) {
    GemmDescription d =
        describe(math(f32e, f32e, op_class, operation), {64, 64, 16}, 3, {2, 2, 1}, "rrr", f32e);
    if (op_class == OpClass::warpgroup) d.tile = {{64, 64, 32}, 3, {4, 1, 1}, d.tile.math, {1, 1}};
    const Tensor out = Tensor::empty({m, n}, f32, test_device());
    GemmOperation(d).run({.a = a, .b = b, .d = out, .scalars = {{"alpha", 1.0}, {"beta", 0.0}}});
    const Reference actual = Reference::of(out);
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(actual[i] - expected[i]));
    return worst;
  };
  // Terms are uniform in [-1, 1]^2, of deviation 1/3: sums of 1000 are about 10. Their roundings
  // walk at random: sqrt(1000) steps of half a unit of the last place of 10.
  CHECK(error(MathOperation::fast_f32) < 32 * 10 * 0x1p-24);
  CHECK(error(MathOperation::fast_f32, OpClass::warpgroup) < 32 * 10 * 0x1p-24);
  // One product is off by 2^-11 of 1/4, twice; so are 1000 at random.
  CHECK(error(MathOperation::multiply_add) < 8 * 32 * 0.25 * 0x1p-11);
}
